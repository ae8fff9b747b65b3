"""How far a delivery in rings is, from the events it tells. Pure: no Qt."""

from __future__ import annotations

from dataclasses import dataclass, replace

from console.fleet.delivery import Delivered, DeliveryEnded, DeliveryEvent, RingStarted
from shard_export.library.counts import counted


@dataclass(frozen=True, slots=True)
class Delivery:
    """A delivery as it was told: who has it, who does not and why, and the ring that is under way."""

    model: str
    ring: int = 0
    ring_devices: int = 0
    total: int = 0
    has: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    end: DeliveryEnded | None = None
    lost: str = ""

    @property
    def goes_on(self) -> bool:
        """Whether more will be heard."""
        return self.end is None and not self.lost


def after(delivery: Delivery, event: DeliveryEvent) -> Delivery:
    """Return how far it is after an event."""
    match event:
        case RingStarted():
            return replace(delivery, ring=event.ring, ring_devices=event.devices, total=event.total)
        case Delivered(problem=""):
            return replace(delivery, has=(*delivery.has, event.device_id))
        case Delivered():
            return replace(delivery, problems=(*delivery.problems, (event.device_id, event.problem)))
        case DeliveryEnded():
            return replace(delivery, end=event)


def headline(delivery: Delivery) -> tuple[str, bool]:
    """Say how a delivery is, and whether that is bad: what happened and what to do."""
    done = f"{len(delivery.has)} of {counted(delivery.total, 'PC has', 'PCs have')} it"
    failed = f", {len(delivery.problems)} could not be brought it" if delivery.problems else ""
    if delivery.lost:
        if not delivery.total:
            return f"{delivery.lost} Whether it was begun, the list of deliveries shows.", True
        return f"{delivery.lost} The delivery itself goes on.", True
    if delivery.end is None:
        ring = f" Ring {delivery.ring} goes up to {delivery.ring_devices} of them." if delivery.total else ""
        return f"{done}{failed}.{ring}", bool(delivery.problems)
    if delivery.end.stopped and not delivery.total:
        return delivery.end.stopped, True
    if delivery.end.stopped:
        return f"{delivery.end.stopped} {done}{failed}; what they have they keep. Deliver again to go on.", True
    if delivery.end.failed:
        return f"{done}{failed}. Deliver again when they are back: only what is missing is sent.", True
    return f"{done}. The delivery is complete.", False
