"""Deliveries of models to PCs: who is to get what, who has it, and how each ended."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from sqlalchemy import select

from console.registry.audit import CONSOLE, Actor, note
from console.registry.database import Database
from console.registry.errors import NotFound
from console.registry.models import DeliveryRow
from console.registry.records import DeliveryRecord


class Deliveries:
    """The deliveries of one console; `console_id` is empty where only one uses the registry."""

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now
        self.console_id = ""

    def begin(
        self, model_id: str, digest: str, layers: tuple[int, int], devices: Sequence[str], actor: Actor = CONSOLE
    ) -> DeliveryRecord:
        """Remember a delivery of layers `layers[0] <= i < layers[1]` to these PCs."""
        first, last = layers
        with self._database.writing() as session:
            row = DeliveryRow(
                delivery_id=secrets.token_hex(8),
                console_id=self.console_id,
                model_id=model_id,
                library_digest=digest,
                first=first,
                last=last,
                devices=list(devices),
                done={},
                begun_s=self._now(),
                ended_s=None,
                stopped="",
            )
            session.add(row)
            detail = {"delivery": row.delivery_id, "first": first, "last": last, "pcs": len(row.devices)}
            note(session, self._now(), actor, "library.deliver", model_id, **detail)
            return _delivery(row)

    def note(self, delivery_id: str, device_id: str, problem: str) -> None:
        """A PC has it, or why not. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(DeliveryRow, delivery_id)
            if row is None:
                raise NotFound(f"There is no delivery {delivery_id}.")
            row.done = {**row.done, device_id: problem}

    def end(self, delivery_id: str, stopped: str = "", actor: Actor = CONSOLE) -> DeliveryRecord:
        """A delivery is over; `stopped` says why not every ring was begun. Raises NotFound."""
        with self._database.writing() as session:
            row = session.get(DeliveryRow, delivery_id)
            if row is None:
                raise NotFound(f"There is no delivery {delivery_id}.")
            row.ended_s, row.stopped = self._now(), stopped
            failed = sum(bool(problem) for problem in row.done.values())
            detail = {"delivery": delivery_id, "delivered": len(row.done) - failed, "failed": failed}
            note(session, self._now(), actor, "library.delivered", row.model_id, **detail, stopped=stopped)
            return _delivery(row)

    def unfinished(self) -> list[DeliveryRecord]:
        """Return this console's deliveries that are not over, the oldest first."""
        query = (
            select(DeliveryRow)
            .where(DeliveryRow.console_id == self.console_id, DeliveryRow.ended_s.is_(None))
            .order_by(DeliveryRow.begun_s, DeliveryRow.delivery_id)
        )
        with self._database.reading() as session:
            return [_delivery(row) for row in session.scalars(query)]


def _delivery(row: DeliveryRow) -> DeliveryRecord:
    return DeliveryRecord(
        delivery_id=row.delivery_id,
        model_id=row.model_id,
        library_digest=row.library_digest,
        first=row.first,
        last=row.last,
        devices=list(row.devices),
        done=dict(row.done),
        begun_s=row.begun_s,
        ended_s=row.ended_s,
        stopped=row.stopped,
    )
