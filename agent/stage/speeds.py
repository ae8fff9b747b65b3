"""What steps of real units take on a device: plain data, and the arithmetic from stages measured to units. Pure."""

from __future__ import annotations

import msgspec

from agent.stage.types import EngineName, Numerics, StageSpec

EXIT_YIELDED = 5
"""The exit code of a measuring process whose gate was shut."""
ROWS = 8
"""The other number of rows that is measured beside one: what a step of a busy pipeline carries."""


class StepTimes(msgspec.Struct, frozen=True):
    """Milliseconds of one decode step of a stage: with one row, and with `ROWS` of them."""

    one_ms: float
    eight_ms: float


class UnitSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """What the units of a model take on one device by one engine, in milliseconds of a decode step.

    `layer_ms` is one layer with one row, `layer_ms_8` with eight; `fixed_ms` what a step costs whatever it computes;
    `embed_ms`, `head_ms` and `head_ms_8` the model's ends (None: they are not on this PC). `fused` as in StageReport.
    """

    engine: EngineName
    fused: bool
    layer_ms: float
    layer_ms_8: float
    fixed_ms: float = 0.0
    embed_ms: float | None = None
    head_ms: float | None = None
    head_ms_8: float | None = None


class Measurement(msgspec.Struct, frozen=True, kw_only=True):
    """One real layer of a library, measured on a device of this PC with each of its engines.

    It counts for as long as layer (`unit_sha256`, of `layer_bytes`), `driver` and `openvino` stay the same. `at_s` is
    Unix time by the console's clock.
    """

    library_digest: str
    unit_sha256: str
    layer_bytes: int
    device: str
    driver: str
    openvino: str
    numerics: Numerics
    speeds: list[UnitSpeed]
    at_s: float


class MeasureSpec(msgspec.Struct, frozen=True):
    """What a measuring process is to do: the device, numerics and folder of `stage`, whose range is one layer.

    `engines` are measured in order, each with `copies` of that layer in a row; `embed` and `head` say which ends of
    the model are in the folder, too.
    """

    stage: StageSpec
    engines: list[EngineName]
    copies: int
    embed: bool = False
    head: bool = False


class Measured(msgspec.Struct, frozen=True):
    """What a measuring process answers: the engines that ran, and why the others did not.

    `tested` are the kinds of layers, by their attention windows, with which an engine passed its self-test.
    """

    speeds: list[UnitSpeed]
    refused: dict[EngineName, str] = {}
    tested: dict[EngineName, list[int]] = {}


def unit_speed(
    engine: EngineName,
    single: StepTimes,
    stack: StepTimes,
    copies: int,
    *,
    fused: bool,
    embed: StepTimes | None = None,
    head: StepTimes | None = None,
) -> UnitSpeed:
    """Take stages apart: one layer, `copies` of it, one with the embedding before it and one with the head behind it.

    The line through one and `copies` layers is a layer's cost and what is left without any. Noise never makes a part
    cheaper than nothing, nor a layer free.
    """
    layer_ms, fixed_ms = _line(single.one_ms, stack.one_ms, copies)
    layer_ms_8, _ = _line(single.eight_ms, stack.eight_ms, copies)
    return UnitSpeed(
        engine=engine,
        fused=fused,
        layer_ms=layer_ms,
        layer_ms_8=max(layer_ms, layer_ms_8),
        fixed_ms=fixed_ms,
        embed_ms=None if embed is None else max(0.0, embed.one_ms - single.one_ms),
        head_ms=None if head is None else max(0.0, head.one_ms - single.one_ms),
        head_ms_8=None if head is None else max(0.0, head.eight_ms - single.eight_ms),
    )


def _line(single_ms: float, stack_ms: float, copies: int) -> tuple[float, float]:
    layer_ms = (stack_ms - single_ms) / (copies - 1)
    # Several layers cannot be faster than one: then the noise is larger than the layer, and their mean says more.
    layer_ms = layer_ms if layer_ms > 0 else stack_ms / copies
    return layer_ms, max(0.0, single_ms - layer_ms)
