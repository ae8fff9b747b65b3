from __future__ import annotations

import threading

from agent.link.identity import DeviceId
from console.registry.registry import Registry
from console.registry.sightings import MOST_AT_ONCE, Sighting
from tests.support.enrolment import Clock
from tests.unit.console.registry.test_registry import make_device


def test_being_seen_adds_to_what_is_known_and_keeps_the_rest(registry: Registry, clock: Clock) -> None:
    first, second = make_device(registry), make_device(registry, spki_sha256="cd" * 32, facts={"cores": 2})
    clock.now_s += 60
    registry.sightings.note(
        [
            Sighting(first.device_id, "renamed", {"cores": 8}, "keyring"),
            Sighting(second.device_id),
            Sighting(DeviceId("unknown")),
        ]
    )
    found, other = registry.devices.find(first.device_id), registry.devices.find(second.device_id)
    assert found is not None
    assert other is not None
    assert (found.name, found.facts, found.key_protection) == ("renamed", {"os": "Linux", "cores": 8}, "keyring")
    assert (other.name, other.facts, other.key_protection) == ("pc-17", {"cores": 2}, "file")
    assert found.seen_s == other.seen_s == clock.now_s
    assert registry.devices.count() == 2


def test_what_no_database_keeps_costs_only_itself(registry: Registry, clock: Clock) -> None:
    good, odd = make_device(registry), make_device(registry, spki_sha256="cd" * 32)
    clock.now_s += 60
    registry.sightings.note(
        [Sighting(odd.device_id, "p\0c", {"os": "a\0b", "cpu": "\ud800"}), Sighting(good.device_id)]
    )
    found, other = registry.devices.find(odd.device_id), registry.devices.find(good.device_id)
    assert found is not None
    assert other is not None
    assert (found.name, found.facts["os"]) == ("pc", "ab")
    assert found.seen_s == other.seen_s == clock.now_s


def test_more_pcs_than_a_question_may_name_are_noted_all(sqlite_registry: Registry, clock: Clock) -> None:
    device = make_device(sqlite_registry)
    strangers = [Sighting(DeviceId(f"{number:016}")) for number in range(MOST_AT_ONCE + 1)]
    sqlite_registry.sightings.note([*strangers, Sighting(device.device_id)])
    found = sqlite_registry.devices.find(device.device_id)
    assert found is not None
    assert found.seen_s == clock.now_s


def test_consoles_that_note_the_same_pcs_in_other_orders_do_not_wait_for_each_other_for_ever(where: str) -> None:
    with Registry.open(where) as one, Registry.open(where) as other:
        ids = [make_device(one, spki_sha256=f"{number:064x}").device_id for number in range(20)]
        problems: list[Exception] = []

        def note(registry: Registry, order: list[DeviceId]) -> None:
            try:
                for _ in range(10):
                    registry.sightings.note([Sighting(device_id) for device_id in order])
            except Exception as error:  # noqa: BLE001 - thread edge: reported below
                problems.append(error)

        works = [(one, ids), (other, ids[::-1])]
        threads = [threading.Thread(target=note, args=work) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert problems == []


def test_two_sightings_become_one_with_the_newest_word_of_each() -> None:
    device = DeviceId("one")
    earlier = Sighting(device, "old", {"cores": 4, "os": "Linux"}, "file")
    assert earlier.followed_by(Sighting(device)) == earlier
    assert earlier.followed_by(Sighting(device, "new", {"cores": 8}, "keyring")) == Sighting(
        device, "new", {"cores": 8, "os": "Linux"}, "keyring"
    )
