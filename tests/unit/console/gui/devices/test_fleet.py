"""console.gui.devices without Qt: what is said of a PC, who is let through, what is kept, which record goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.errors import DataFolderUnusable
from console.gui.devices.filters import SavedFilters
from console.gui.devices.fleet import COLUMNS, Filter, Status, counts, parts_of, parts_text, reason_of, status_of
from console.gui.devices.former import former_of
from tests.support.shown_fleet import device_id, make_agent, make_fleet, make_pipeline


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"state": "pending", "link": "offline"}, "pending"),
        ({"state": "suspended"}, "suspended"),
        ({"state": "evicted"}, "gone"),
        ({"state": "banned"}, "gone"),
        ({"link": "offline"}, "offline"),
        ({"held_because": ["user_input"]}, "held"),
        ({}, "available"),
    ],
)
def test_every_pc_is_counted_under_one_status(fields: dict[str, Any], status: Status) -> None:
    agent = make_agent(9, **fields)
    assert status_of(agent) == status
    assert counts([agent], {}) == {status: 1}


def test_who_runs_a_stage_serves_also_while_it_makes_way() -> None:
    parts = parts_of([make_pipeline("small", devices=2, layers=24)])
    agent = make_agent(1, held_because=["user_input"])
    assert status_of(agent, parts[agent.device_id]) == "serving"
    assert parts_text(parts[agent.device_id]) == "small 12-23"
    assert parts[agent.device_id][0].round_trip_ms == 2.8
    assert parts[agent.device_id][0].ms_per_layer == pytest.approx(12.5 / 12)


def test_a_status_and_words_both_have_to_fit_and_removed_pcs_are_shown_when_asked_for() -> None:
    fleet = make_fleet(16)
    assert sum(Filter().lets(agent) for agent in fleet) == 14
    assert sum(Filter("gone").lets(agent) for agent in fleet) == 2
    assert sum(Filter("held").lets(agent) for agent in fleet) == 2
    assert [agent.name for agent in fleet if Filter("held", "PC-0003 oslo").lets(agent)] == ["pc-0003"]
    assert [agent.name for agent in fleet if Filter(None, "was sold 0007").lets(agent)] == ["pc-0007"]
    assert not any(Filter(None, "oslo nowhere").lets(agent) for agent in fleet)


def test_a_device_code_finds_its_pc_while_it_waits_for_approval() -> None:
    assert Filter("pending", "k7qf-0005").lets(make_fleet(8)[5])


def test_a_reason_is_what_somebody_said_then_what_holds_the_pc() -> None:
    assert reason_of(make_agent(1, reason="It was sold.", held_because=["user_input"])) == "It was sold."
    assert (
        reason_of(make_agent(1, held_because=["user_input", "on_battery"]))
        == "somebody is using it, it runs on its battery"
    )
    assert reason_of(make_agent(1, state="banned")) == "banned"
    assert reason_of(make_agent(1, console="oslo")) == "at the console oslo"
    assert reason_of(make_agent(1)) == ""


def test_every_column_can_be_worded_and_sorted_for_every_pc() -> None:
    fleet = make_fleet(16)
    parts = parts_of([make_pipeline()])
    for column in COLUMNS:
        for agent in fleet:
            assert isinstance(column.text(agent, parts.get(agent.device_id, ()), 0.0), str)
        sorted(fleet, key=lambda agent: column.key(agent, parts.get(agent.device_id, ())))  # type: ignore[arg-type, return-value]


def test_saved_filters_come_back_by_name_and_a_broken_file_is_an_empty_one(tmp_path: Path) -> None:
    filters = SavedFilters(tmp_path)
    filters.save("held in Oslo", Filter("held", "site:oslo"))
    filters.save("waiting", Filter("pending"))
    filters.save("waiting", Filter("pending", "lab"))
    filters.write()
    again = SavedFilters(tmp_path)
    assert {one.name: one.filter() for one in again.all} == {
        "held in Oslo": Filter("held", "site:oslo"),
        "waiting": Filter("pending", "lab"),
    }
    again.remove("waiting")
    again.write()
    assert [one.name for one in SavedFilters(tmp_path).all] == ["held in Oslo"]
    (tmp_path / "filters.json").write_text("[{", "utf-8")
    assert SavedFilters(tmp_path).all == []


def test_a_filter_of_a_later_version_lets_all_through(tmp_path: Path) -> None:
    (tmp_path / "filters.json").write_text('[{"name": "new", "status": "dreaming", "words": "x"}]', "utf-8")
    assert SavedFilters(tmp_path).all[0].filter() == Filter(None, "x")


def test_a_folder_that_takes_no_filters_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DataFolderUnusable, match="file cannot be made"):
        SavedFilters(tmp_path / "file").write()


RECORDS = {
    "seen": make_agent(1, device_id="seen", link="offline", seen_s=100.0),
    "later": make_agent(2, device_id="later", link="offline", seen_s=200.0),
    "never": make_agent(3, device_id="never", link="offline", seen_s=None),
    "now": make_agent(4, device_id="now", link="connected", seen_s=50.0),
    "banned": make_agent(5, device_id="banned", link="offline", seen_s=10.0, state="banned"),
    "pending": make_agent(6, device_id="pending", link="offline", seen_s=10.0, state="pending"),
}


@pytest.mark.parametrize(
    ("device", "others", "former"),
    [
        ("now", ["seen"], "seen"),
        ("now", ["seen", "later"], "later"),
        ("now", ["banned", "pending", "unknown"], None),
        ("seen", ["now"], None),
        ("seen", ["later"], None),
        ("later", ["seen"], "seen"),
        ("seen", ["never"], None),
        ("never", ["seen"], None),
        ("banned", ["seen"], None),
        ("pending", ["seen"], None),
    ],
)
def test_a_record_takes_over_only_from_one_that_is_out_of_use_and_older(
    device: str, others: list[str], former: str | None
) -> None:
    agent = msgspec.structs.replace(RECORDS[device], same_machine=others)
    found = former_of(agent, RECORDS)
    assert (found and found.device_id) == former


@given(
    st.lists(st.tuples(st.sampled_from(["connected", "offline"]), st.none() | st.floats(1, 9)), min_size=2, max_size=2)
)
def test_of_two_records_of_a_machine_at_most_one_takes_over_and_never_from_one_in_use(
    two: list[tuple[str, float | None]],
) -> None:
    ids = ["a", "b"]
    known = {
        name: make_agent(1, device_id=name, same_machine=[other], link=link, seen_s=seen_s)
        for name, other, (link, seen_s) in zip(ids, reversed(ids), two, strict=True)
    }
    ending = [former for agent in known.values() if (former := former_of(agent, known)) is not None]
    assert len(ending) <= 1
    assert all(former.link == "offline" for former in ending)


def test_the_name_of_a_pc_is_its_own_in_the_search() -> None:
    assert Filter(None, device_id(5)).lets(make_agent(5))
