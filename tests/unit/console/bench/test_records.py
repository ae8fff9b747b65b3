"""console.bench.records and comparing: runs that are kept, found again and compared."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

from console.bench.comparing import changes, differences
from console.bench.figures import Figures, Spread
from console.bench.load import Load
from console.bench.records import Run, Runs, name_for
from console.errors import ClientError, UsageWrong


def level(users: int = 1, rate: float = 10.0, first_ms: float | None = 100.0, **fields: Any) -> Figures:
    values: dict[str, Any] = {
        "users": users, "window_s": 10.0, "answered": 5, "cut": 0, "errors": {}, "prompt_tokens": 50,
        "cached_tokens": 0,
        "answer_tokens": 100, "tokens_per_s": rate, "tokens_per_s_user": rate / users, "answering_tokens_per_s": rate,
        "first_token_ms": Spread(5, first_ms, first_ms), "inter_token_ms": Spread(5, 10.0, 20.0),
    }  # fmt: skip
    return Figures(**values | fields)


def run(name: str = "one", made_s: float = 1.0, *levels: Figures, model: str = "small", **fields: Any) -> Run:
    return Run(
        name=name,
        made_s=made_s,
        version="1",
        load=Load(model=model, users=[1]),
        levels=list(levels) or [level()],
        **fields,
    )


def test_what_is_kept_is_found_again_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    path = runs.keep(run())
    assert runs.find("one") == run()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [found.name for found in runs.all()] == ["one"]


def test_the_last_one_is_the_latest_whole_run_of_the_model(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    for each in (
        run("a", 1.0), run("b", 2.0), run("c", 3.0, model="other"), run("d", 4.0, interrupted=True),
    ):  # fmt: skip
        runs.keep(each)
    assert runs.find("last", "small").name == "b"
    assert runs.find("last").name == "c"
    with pytest.raises(ClientError, match="no earlier load test of tall"):
        runs.find("last", "tall")


@pytest.mark.parametrize("name", ["../x", "", ".hidden", "a/b", "x" * 101, "a b"])
def test_names_that_leave_the_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageWrong, match="no name"):
        Runs(tmp_path).find(name)


def test_a_name_is_used_once(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.check_free("one")
    runs.keep(run())
    for taken in ("one", "last"):
        with pytest.raises(UsageWrong, match="already"):
            runs.check_free(taken)


def test_damaged_files_are_left_out_of_the_list_and_named_when_asked_for(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    runs.keep(run()).with_name("two.json").write_bytes(b"[" * 5000)
    assert [found.name for found in runs.all()] == ["one"]
    with pytest.raises(ClientError, match=r"two\.json cannot be read"):
        runs.find("two")
    with pytest.raises(ClientError, match="bench list"):
        runs.find("three")


@pytest.mark.parametrize(
    ("model", "name"), [("org/Model 7B", "org-Model-7B-now"), ("../..", "model-now"), ("é", "model-now")]
)
def test_a_name_is_made_of_a_model(model: str, name: str) -> None:
    assert name_for(model, "now") == name


def test_changes_say_better_or_worse_and_what_cannot_be_compared() -> None:
    before = run("a", 1.0, level(1, 10.0, 100.0), level(8, 40.0, None))
    now = run("b", 2.0, level(1, 12.0, 150.0), level(4, 1.0), level(8, 40.0, 50.0))
    found = {(one.users, one.name): one.better_percent for one in changes(before, now)}
    assert found[1, "tokens/s of all"] == 20.0
    assert found[1, "first token p50 (ms)"] == -50.0
    assert found[8, "tokens/s of all"] == 0.0
    assert found[8, "first token p50 (ms)"] is None
    assert found[1, "failed"] is None
    assert {users for users, _ in found} == {1, 8}


def test_differences_name_all_that_was_not_the_same() -> None:
    before, now = run("a", served=["two PCs"]), run("b", served=["one PC"], interrupted=True)
    assert differences(before, before) == []
    now = msgspec.structs.replace(now, load=msgspec.structs.replace(now.load, max_tokens=5, mix="short=1"), version="2")
    said = " ".join(differences(before, now))
    for words in (
        "Tokens of an answer: 128 before, 5 now",
        "Prompts",
        "two PCs",
        "one PC",
        "version was 1",
        "b was inter",
    ):
        assert words in said
