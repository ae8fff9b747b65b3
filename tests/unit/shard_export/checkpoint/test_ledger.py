"""Every tensor is used exactly once or ignored for a reason; nothing is invented."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

from shard_export.build.skeleton import Skeleton
from shard_export.checkpoint.ledger import KeyLedger
from shard_export.checkpoint.safetensors import SafetensorsCheckpoint
from shard_export.checkpoint.source import Checkpoint, open_checkpoint
from shard_export.library.errors import CheckpointError, TensorMismatch
from tests.support.checkpoints import edit_weights, make_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Tensors(Checkpoint):
    """A checkpoint in memory."""

    path = Path("tiny")
    model_id, revision = "tiny", ""

    def __init__(self, **tensors: torch.Tensor) -> None:
        self._tensors = {name.replace("__", "."): tensor for name, tensor in tensors.items()}

    def config(self) -> Any:
        raise NotImplementedError

    def tokenizer(self) -> Any:
        raise NotImplementedError

    def bind(self, model: torch.nn.Module) -> None:
        """Nothing to learn."""

    def names(self) -> frozenset[str]:
        return frozenset(self._tensors)

    def tensor(self, name: str) -> torch.Tensor:
        return self._tensors[name]

    def close(self) -> None:
        """Nothing to close."""


def make_ledger(
    tied: dict[str, str] | None = None, ignored: tuple[str, ...] = (), **tensors: torch.Tensor
) -> KeyLedger:
    return KeyLedger(Tensors(**tensors), {EMBED: (3, 2), HEAD: (3, 2)}, tied or {}, ignored)


ONES, TWOS = torch.ones(3, 2), torch.full((3, 2), 2.0)
TIED = {HEAD: EMBED}


def test_each_tensor_is_handed_out_once_and_all_must_be_used() -> None:
    ledger = make_ledger(model__embed_tokens__weight=ONES, lm_head__weight=TWOS)
    assert torch.equal(ledger.take(EMBED), ONES)
    with pytest.raises(TensorMismatch, match="asked for twice"):
        ledger.take(EMBED)
    with pytest.raises(TensorMismatch, match=r"lm_head\.weight was never used"):
        ledger.close()
    assert torch.equal(ledger.take(HEAD), TWOS)
    ledger.close()
    assert ledger.ignored == {}


def test_a_tied_tensor_with_the_same_values_is_ignored_with_the_reason() -> None:
    ledger = make_ledger(TIED, model__embed_tokens__weight=ONES, lm_head__weight=ONES.clone())
    assert ledger.ignored == {HEAD: f"holds the same values as {EMBED}"}
    assert ledger.notes == []
    assert torch.equal(ledger.take(HEAD), ONES)


def test_a_tied_tensor_with_other_values_is_used_and_said() -> None:
    ledger = make_ledger(TIED, model__embed_tokens__weight=ONES, lm_head__weight=TWOS)
    assert ledger.ignored == {}
    assert len(ledger.notes) == 1
    assert HEAD in ledger.notes[0]
    assert torch.equal(ledger.take(HEAD), TWOS)
    assert torch.equal(ledger.take(EMBED), ONES)


@pytest.mark.parametrize("only", ["model__embed_tokens__weight", "lm_head__weight"])
def test_whichever_tied_tensor_is_there_gives_the_values_to_both(only: str) -> None:
    ledger = make_ledger(TIED, **{only: TWOS})
    assert torch.equal(ledger.take(EMBED), TWOS)
    assert torch.equal(ledger.take(HEAD), TWOS)
    ledger.close()


def test_missing_tied_tensors_are_missing() -> None:
    with pytest.raises(TensorMismatch, match="lacks the tensor"):
        make_ledger(TIED)


def test_what_nobody_knows_is_refused_by_name() -> None:
    with pytest.raises(TensorMismatch, match=r"model\.extra\.bias"):
        make_ledger(model__embed_tokens__weight=ONES, lm_head__weight=TWOS, model__extra__bias=ONES)
    tensors = {"model__embed_tokens__weight": ONES, "lm_head__weight": TWOS, "model__layers__9__mtp": ONES}
    assert make_ledger(None, (r"layers\.9\.",), **tensors).ignored == {
        "model.layers.9.mtp": "the model class itself ignores it"
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_values_that_are_not_finite_are_refused_by_name(value: float) -> None:
    bad = ONES.clone()
    bad[2, 1] = value
    ledger = make_ledger(model__embed_tokens__weight=ONES, lm_head__weight=bad)
    ledger.take(EMBED)
    with pytest.raises(CheckpointError, match=r"lm_head\.weight .* not finite"):
        ledger.take(HEAD)


def test_a_sum_that_overflows_is_no_damage() -> None:
    huge = torch.full((3, 2), 3e38)
    assert torch.equal(make_ledger(TIED, model__embed_tokens__weight=huge).take(EMBED), huge)


def test_values_are_compared_a_few_rows_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_checkpoint(tmp_path / "model")
    weight = load_file(str(source / "model.safetensors"))[EMBED]
    other = weight.clone()
    other[-1, -1] += 1
    edit_weights(source, a=weight, b=weight.clone(), c=other, d=weight[:-1].clone())
    monkeypatch.setattr("shard_export.checkpoint.safetensors._SLICE_ELEMENTS", 1000)
    checkpoint = SafetensorsCheckpoint(source)
    assert checkpoint.same("a", "b")
    assert not checkpoint.same("a", "c")
    assert not checkpoint.same("a", "d")
    checkpoint.close()


class NoChance(TorchFunctionMode):  # type: ignore[misc] # torch has no types here
    """Refuses every random value that would land in real memory."""

    RANDOM = ("normal_", "uniform_", "trunc_normal_", "bernoulli_", "rand", "randn", "randint", "exponential_")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in self.RANDOM and isinstance(result, torch.Tensor):
            assert result.is_meta, f"{func.__name__} made values"
        return result


@pytest.mark.parametrize("family", ["llama", "qwen2", "gemma", "phi3"])
def test_nothing_is_ever_random(family: str, tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model", family)
    stored = load_file(str(source / "model.safetensors"))
    filled: list[dict[str, torch.Tensor]] = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        with NoChance():
            skeleton = Skeleton(open_checkpoint(source))
            layer = skeleton.fill_layer(1)
        for name, parameter in layer.named_parameters():
            assert torch.equal(parameter, stored[f"model.layers.1.{name}"].float())
        assert set(layer.state_dict()) == {name for name, _ in layer.named_parameters()}
        buffers = {**dict(skeleton.model.named_buffers()), **dict(layer.named_buffers())}
        filled.append({name: buffer.clone() for name, buffer in buffers.items()})
    assert filled[0].keys() == filled[1].keys()
    assert all(torch.equal(filled[0][name], filled[1][name]) for name in filled[0])


@pytest.mark.expected_logs("transformers.modeling_utils", "we will NOT tie them")
@pytest.mark.parametrize(("change", "same"), [(lambda head: head + 0.5, False), (lambda head: head, True)])
def test_a_head_in_the_file_of_a_tied_model_is_what_transformers_uses(
    change: Callable[[torch.Tensor], torch.Tensor], same: bool, tmp_path: Path
) -> None:
    from transformers import AutoModelForCausalLM

    source = make_checkpoint(tmp_path / "model", "qwen2")
    embed = load_file(str(source / "model.safetensors"))[EMBED]
    edit_weights(source, lm_head__weight=change(embed.clone()))
    ledger = Skeleton(open_checkpoint(source)).ledger
    assert (HEAD in ledger.ignored) == same
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype=torch.float32)
    assert torch.equal(model.lm_head.weight, change(embed))
    assert (model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()) == same


def test_two_tensors_for_one_parameter_are_refused_by_name(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model")
    edit_weights(source, norm__weight=torch.ones(64))  # the older name of model.norm.weight
    with pytest.raises(TensorMismatch, match=r"model\.norm\.weight.* norm\.weight"):
        Skeleton(open_checkpoint(source))
