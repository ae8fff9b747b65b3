"""What a library costs in quality: its answers against the source's own, token by token.

The library runs as one stage in exact numerics, the source in transformers in 32 bits; both read the same tokens. Three
figures say how far apart they are: how often the most likely next token is the same, the mean Kullback-Leibler
divergence of the distributions (in nats), and the perplexity of each on the text.
"""

from __future__ import annotations

import contextlib
import io
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import openvino as ov
import torch
from rich.table import Table

from shard_export.build.advice import quiet
from shard_export.build.texts import EVALUATION, render
from shard_export.checkpoint.source import open_checkpoint
from shard_export.library.counts import counted
from shard_export.library.errors import CheckpointError, LibraryError
from shard_export.library.graph import assemble
from shard_export.library.store import verify_library

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shard_export.library.manifest import Manifest

MAX_PIECE_TOKENS = 512
"""Longer texts are cut: each piece is read from position 0 on."""

EXACT = {"INFERENCE_PRECISION_HINT": "f32", "KV_CACHE_PRECISION": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}

Array = np.ndarray[Any, Any]


class Evaluation(msgspec.Struct, frozen=True):
    """A library against its source over `positions` tokens; bits and bytes are the library's.

    `mean_kl` is in nats. Perplexities are over the positions that have a next token. `layer_bits_per_weight` is the
    mean over the layers.
    """

    model_id: str
    layer_mode: str
    layer_bits_per_weight: float
    library_bytes: int
    positions: int
    top1_agreement: float
    mean_kl: float
    source_perplexity: float
    library_perplexity: float


def evaluate(
    library: Path, source: Path, text: str = "", on_progress: Callable[[int, int], None] | None = None
) -> Evaluation:
    """Compare a library with the checkpoint it was made of, on `text` or else on built-in conversations.

    Loads the whole source in 32 bits; blocking, so call it from a worker thread or process. `on_progress` is told
    how many tokens are done, and of how many. Raises LibraryError, CheckpointError, CheckpointTorn.
    """
    manifest = verify_library(library)
    with quiet():
        tokenizer, model = _open_source(source)
        pieces = _pieces(tokenizer, text, min(MAX_PIECE_TOKENS, manifest.context_tokens))
        if model.config.vocab_size != manifest.vocab_size:
            raise LibraryError(f"{library} was not made from {source}: their vocabularies differ; name its source.")
        stage = _Stage(library, manifest)
        sums = np.zeros(4)
        done, total = 0, sum(len(piece) for piece in pieces)
        for piece in pieces:
            sums += _compare(_source_logits(model, piece), stage.logits(piece), piece)
            done += len(piece)
            if on_progress is not None:
                on_progress(done, total)
    layers = [unit for unit in manifest.units if unit.kind == "layer"]
    followed = total - len(pieces)
    return Evaluation(
        model_id=manifest.model_id,
        layer_mode="+".join(sorted({unit.compression.mode for unit in layers})),
        layer_bits_per_weight=round(float(np.mean([unit.compression.bits_per_weight for unit in layers])), 4),
        library_bytes=sum(record.size_bytes for record in manifest.files()),
        positions=total,
        top1_agreement=float(sums[0] / total),
        mean_kl=max(0.0, float(sums[1] / total)),  # rounding can leave it a hair below
        source_perplexity=float(np.exp(sums[2] / followed)),
        library_perplexity=float(np.exp(sums[3] / followed)),
    )


def table(found: Evaluation) -> Table:
    """Lay the figures out for a terminal."""
    figures = Table(title=f"{found.model_id}, {counted(found.positions, 'position')}", show_header=False)
    rows = (
        ("layers", f"{found.layer_mode}, {found.layer_bits_per_weight:.2f} bits a weight"),
        ("library", f"{found.library_bytes / 1e6:.1f} MB"),
        ("top-1 agreement", f"{found.top1_agreement:.1%}"),
        ("mean KL", f"{found.mean_kl:.5f}"),
        ("perplexity, source", f"{found.source_perplexity:.3f}"),
        ("perplexity, library", f"{found.library_perplexity:.3f}"),
    )
    for row in rows:
        figures.add_row(*row)
    return figures


class _Stage:
    """A whole library as one stage in exact numerics."""

    def __init__(self, library: Path, manifest: Manifest) -> None:
        model = assemble(library, manifest, 0, manifest.layer_count)
        self._request = ov.Core().compile_model(model, "CPU", EXACT).create_infer_request()

    def logits(self, ids: Array) -> Array:
        """Read ids [n] from an empty cache; returns logits [n,V]."""
        self._request.reset_state()
        inputs = {
            "input_ids": ids[None],
            "attention_mask": np.ones((1, len(ids)), np.int64),
            "position_ids": np.arange(len(ids), dtype=np.int64)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits: Array = self._request.infer(inputs)["logits"][0].copy()
        return logits


def _open_source(source: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM

    checkpoint = open_checkpoint(source.absolute())
    try:
        tokenizer = checkpoint.tokenizer()
    finally:
        checkpoint.close()
    is_file = source.is_file()
    folder, file = (source.parent, {"gguf_file": source.name}) if is_file else (source, {})
    try:
        # transformers draws its own progress bars there, over ours.
        with contextlib.redirect_stderr(io.StringIO()):
            model = AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, local_files_only=True, **file
            )
    except (ValueError, OSError, RuntimeError, KeyError) as error:
        raise CheckpointError(f"transformers cannot load {source} as a whole ({error}); check the model.") from error
    return tokenizer, model.eval()


def _pieces(tokenizer: Any, text: str, longest: int) -> list[Array]:
    if text:
        texts = [[int(token) for token in tokenizer(text, verbose=False).input_ids]]
    else:
        texts = [render(tokenizer, conversation) for conversation in EVALUATION]
    pieces = [ids[first : first + longest] for ids in texts for first in range(0, len(ids), longest)]
    kept = [np.array(piece, np.int64) for piece in pieces if len(piece) > 1]
    if not kept:
        raise CheckpointError("The text to evaluate on is too short; give at least a few sentences.")
    return kept


def _source_logits(model: Any, ids: Array) -> Array:
    with torch.no_grad():
        logits: Array = model(torch.from_numpy(ids)[None], use_cache=False).logits[0].numpy()
    return logits


def _compare(source: Array, library: Array, ids: Array) -> Array:
    """Return sums over the positions: same most likely token, KL, and both negative log likelihoods."""
    ours, theirs = (torch.log_softmax(torch.from_numpy(logits).double(), -1) for logits in (library, source))
    following = torch.from_numpy(ids[1:, None])
    likelihoods = [-float(part[:-1].gather(1, following).sum()) for part in (theirs, ours)]
    same = float((source.argmax(-1) == library.argmax(-1)).sum())
    return np.array([same, float((theirs.exp() * (theirs - ours)).sum()), *likelihoods])
