"""A `.gguf` file: config and tokenizer through transformers' own reader, tensors dequantized one by one."""

from __future__ import annotations

import contextlib
import mmap
import re
import sys
from typing import TYPE_CHECKING, Any

from shard_export.checkpoint.families import unknown_family
from shard_export.checkpoint.source import Blocks, Checkpoint
from shard_export.library.errors import CheckpointTorn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import torch

# llama.cpp stores the llama3 frequency factors as a tensor; transformers keeps them in the config.
ROPE_FACTORS = "rope_freqs.weight"
MAGIC = b"GGUF"
_MAPPED_BYTES = 1 << 28
"""What was read of the map counts as our memory; after so much of it the pages are given back."""

_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
_END_FIELDS = ("tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
_END_TEXTS = frozenset(
    {"<|eot_id|>", "<|eom_id|>", "<|im_end|>", "<end_of_turn>", "<|end_of_turn|>", "<|END_OF_TURN_TOKEN|>"}
    | {"<|endoftext|>", "<|end_of_text|>", "<EOT>", "<|return|>", "<|call|>"}
)
"""How models spell the end of a turn; files often name only one of the tokens their template ends turns with."""

_END_OF_MESSAGE = "<|end|>"  # ends a turn, except in models that go on after it and have another token for the end
_CONTROL = 3
_QUANTIZATION = re.compile(r"[.-](I?Q\d\w*|B?F16|F32)$", re.IGNORECASE)


class GgufCheckpoint(Checkpoint):
    """The file is memory-mapped; each tensor is dequantized to float32 when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.revision = ""
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise CheckpointTorn(f"{path} is not a GGUF file; download it again.")
        try:
            self._reader: Any = _open_reader(path)
        except (ValueError, IndexError, KeyError, OverflowError, OSError, UnicodeDecodeError) as error:
            raise CheckpointTorn(f"{path} is not a whole GGUF file ({error}); download it again.") from error
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.model_id = _QUANTIZATION.sub("", path.stem)
        self._architecture = self._text("general.architecture")
        self._names: dict[str, str] = {}
        self._mapped_bytes = 0
        self._processor: Any = None

    def config(self) -> Any:
        from transformers import AutoConfig

        try:
            with self._shared_reader():
                return AutoConfig.from_pretrained(
                    str(self.path.parent), gguf_file=self.path.name, local_files_only=True
                )
        except (ValueError, KeyError, NotImplementedError) as error:
            raise unknown_family(self._architecture or "unnamed") from error

    def tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        try:
            with self._shared_reader():
                return AutoTokenizer.from_pretrained(
                    str(self.path.parent), gguf_file=self.path.name, local_files_only=True
                )
        except Exception as error:
            raise CheckpointTorn(f"The tokenizer inside {self.path} cannot be read ({error}).") from error

    def bind(self, model: torch.nn.Module) -> None:
        from gguf import MODEL_ARCH_NAMES, get_tensor_name_map
        from transformers.modeling_gguf_pytorch_utils import TENSOR_PROCESSORS, TensorProcessor

        self._processor = TENSOR_PROCESSORS.get(self._architecture, TensorProcessor)(config=model.config.to_dict())
        by_name = {name: arch for arch, name in MODEL_ARCH_NAMES.items()}
        if self._architecture not in by_name:
            raise unknown_family(self._architecture)
        known = get_tensor_name_map(by_name[self._architecture], model.config.num_hidden_layers)
        renamed = {}
        for ours in model.state_dict():
            stem, dot, suffix = ours.rpartition(".")
            if theirs := known.get_name(stem):
                renamed[theirs + dot + suffix] = ours
        # A tensor nobody maps keeps its own name, so that the key ledger reports it as left over.
        self._names = {renamed.get(name, name): name for name in self._tensors if name != ROPE_FACTORS}

    def names(self) -> frozenset[str]:
        return frozenset(self._names)

    def tensor(self, name: str) -> torch.Tensor:
        import numpy as np
        import torch

        stored = self._names[name]
        values = self._processed(self._dequantized(stored), stored)
        self._mapped_bytes += int(self._tensors[stored].n_bytes)
        if self._mapped_bytes > _MAPPED_BYTES:
            self.forget()
        return torch.from_numpy(np.require(values, np.float32, ["C", "W"]))

    def end_ids(self) -> list[int]:
        named = [self._value(field) for field in _END_FIELDS]
        found = {int(token) for token in named if isinstance(token, int) and token >= 0}
        texts, kinds = self._value("tokenizer.ggml.tokens") or [], self._value("tokenizer.ggml.token_type") or []
        control = {
            text: token for token, (text, kind) in enumerate(zip(texts, kinds, strict=False)) if kind == _CONTROL
        }
        wanted = _END_TEXTS if "<|return|>" in control else _END_TEXTS | {_END_OF_MESSAGE}
        return sorted(found | {token for text, token in control.items() if text in wanted})

    def stored_format(self, name: str) -> str:
        kind = str(self._tensors[self._names[name]].tensor_type.name)
        return "" if kind in _PLAIN else kind

    def blocks(self, name: str) -> Blocks | None:
        import numpy as np
        from gguf import GGML_QUANT_SIZES

        if not (kind := self.stored_format(name)):
            return None
        stored = self._names[name]
        tensor = self._tensors[stored]
        if tensor.data.ndim != 2:
            return None
        # The order of the rows (llama.cpp turns those of q and k) is learned by turning their numbers the same way.
        rows = np.arange(tensor.data.shape[0], dtype=np.float64)[:, None]
        order = np.asarray(self._processed(rows, stored)).reshape(-1).astype(np.int64)
        if not np.array_equal(np.sort(order), np.arange(len(rows))):
            return None
        return Blocks(kind, tensor.data[order], GGML_QUANT_SIZES[tensor.tensor_type][1])

    def rope_factors(self) -> torch.Tensor | None:
        import torch

        return torch.from_numpy(self._dequantized(ROPE_FACTORS)) if ROPE_FACTORS in self._tensors else None

    def forget(self) -> None:
        # What was read of a map counts as our memory until the system wants it back: in the end the whole file.
        mapping = self._reader.data
        while mapping is not None and not isinstance(mapping, mmap.mmap):
            mapping = getattr(mapping, "base", None)
        self._mapped_bytes = 0
        if mapping is not None and sys.platform == "linux":
            mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        self._tensors = {}
        self._reader = None

    @contextlib.contextmanager
    def _shared_reader(self) -> Iterator[None]:
        """Let transformers use the reader we have: it would index the file once for the config and twice more."""
        import gguf

        original = gguf.GGUFReader
        gguf.GGUFReader = lambda _path: self._reader
        try:
            yield
        finally:
            gguf.GGUFReader = original

    def _processed(self, weights: Any, stored: str) -> Any:
        return self._processor.process(
            weights=weights, name=stored, tensor_key_mapping={}, parsed_parameters={"tensors": {}}
        ).weights

    def _dequantized(self, stored: str) -> Any:
        import numpy as np
        from gguf import dequantize

        tensor = self._tensors[stored]
        # Plain numbers are a view of the map, which nobody may write to or keep.
        return np.require(dequantize(tensor.data, tensor.tensor_type), np.float32, ["C", "W"])

    def _value(self, key: str) -> Any:
        field = self._reader.fields.get(key)
        return field.contents() if field is not None else None

    def _text(self, key: str) -> str:
        value = self._value(key)
        return str(value) if value is not None else ""


def _open_reader(path: Path) -> Any:
    import numpy as np
    from gguf import GGUFReader

    class Reader(GGUFReader):  # type: ignore[misc]  # gguf is not followed by mypy
        """The library's reader on a plain view of its memory map, which numpy slices ten times faster."""

        data: Any

        def _get(self, *arguments: Any, **options: Any) -> Any:
            if type(self.data) is np.memmap:
                self.data = self.data.view(np.ndarray)
            return super()._get(*arguments, **options)

    return Reader(str(path))
