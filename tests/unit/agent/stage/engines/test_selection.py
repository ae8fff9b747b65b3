"""The first engine that loads, passes its test and fuses is taken; what was not taken says why."""

from __future__ import annotations

import pytest

from agent.stage.engines.selection import Selection, Verdict, candidates, engines_of, select
from agent.stage.errors import StageLoadError
from agent.stage.types import EngineChoice, EngineName

REFUSED = StageLoadError("load", "It does not fit.")


class FakeEngine:
    """An open engine; `opened` counts, so that never two are open at once."""

    opened = 0

    def __init__(
        self, name: EngineName, *, fused: bool = True, problem: str = "", decode_ms: float = 2.0, before: bool = False
    ) -> None:
        self.name, self.fused, self.verdict = name, fused, Verdict(problem, decode_ms, [] if before else [0])
        assert FakeEngine.opened == 0
        FakeEngine.opened += 1

    def close(self) -> None:
        FakeEngine.opened -= 1


def chosen(
    device: str = "CPU", choice: EngineChoice = "auto", **engines: dict[str, object] | StageLoadError
) -> Selection:
    """Select among engines described by keyword arguments of FakeEngine, or by the error of opening them."""

    def open_engine(name: EngineName) -> FakeEngine:
        known = engines.get(name, {})
        if isinstance(known, StageLoadError):
            raise known
        return FakeEngine(name, **known)  # type: ignore[arg-type]  # a test's own keyword arguments

    FakeEngine.opened = 0
    engine, selection = select(device, choice, open_engine, lambda _, engine: engine.verdict)
    assert FakeEngine.opened == 1
    assert engine.name == selection.engine
    return selection


def test_each_kind_of_device_has_its_order() -> None:
    assert engines_of("CPU") == ["paged", "stateful"]
    assert engines_of("GPU.1") == ["stateful", "paged"]
    assert engines_of("FPGA") == []


def test_only_paged_has_a_stand_in() -> None:
    assert candidates("GPU", "paged") == ["paged", "stateful"]
    assert candidates("GPU", "stateful") == ["stateful"]


def test_the_preferred_engine_is_taken_when_it_passes() -> None:
    selection = chosen()
    assert selection == Selection("paged", "paged passed its self-test on CPU, fused, 2.00 ms a token", {}, 2.0, [0])


def test_who_passed_before_is_taken_by_that() -> None:
    assert chosen(paged={"before": True}).reason == "paged passed its self-test on CPU before, fused, 2.00 ms a token"


def test_an_engine_that_cannot_be_loaded_gives_way() -> None:
    selection = chosen(paged=REFUSED)
    assert (selection.engine, selection.refused) == ("stateful", {"paged": "It does not fit."})


def test_an_engine_that_fails_its_test_gives_way() -> None:
    selection = chosen("GPU", stateful={"problem": "It forgot a token."})
    assert (selection.engine, selection.refused) == ("paged", {"stateful": "It forgot a token."})


def test_a_fused_engine_beats_one_in_pieces() -> None:
    assert chosen(paged={"fused": False}).engine == "stateful"


def test_the_fastest_is_opened_again_when_none_is_fused() -> None:
    selection = chosen(paged={"fused": False, "decode_ms": 3.0}, stateful={"fused": False, "decode_ms": 4.0})
    assert selection.engine == "paged"
    assert "fastest" in selection.reason


def test_the_last_one_left_is_taken_fused_or_not() -> None:
    assert chosen(paged=REFUSED, stateful={"fused": False}).engine == "stateful"


def test_a_named_engine_is_taken_fused_or_not() -> None:
    assert chosen(choice="paged", paged={"fused": False}).reason == "paged was asked for"
    selection = chosen(choice="paged", paged=REFUSED)
    assert (selection.engine, selection.reason) == ("stateful", "stateful stands in for paged")


@pytest.mark.parametrize("code", ["damaged", "memory", "mismatch"])
def test_what_no_other_engine_cures_ends_the_search(code: str) -> None:
    with pytest.raises(StageLoadError, match="Alas") as caught:
        chosen(paged=StageLoadError(code, "Alas."))
    assert caught.value.code == code


def test_all_refusals_are_told_when_none_is_left() -> None:
    with pytest.raises(StageLoadError, match=r"CPU: paged: It does not fit\. stateful: Wrong") as caught:
        chosen(paged=REFUSED, stateful={"problem": "Wrong."})
    assert caught.value.code == "load"


def test_a_device_nobody_knows_runs_nothing() -> None:
    with pytest.raises(StageLoadError, match="No engine runs on FPGA"):
        chosen("FPGA")
