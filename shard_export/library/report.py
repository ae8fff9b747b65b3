"""What a library says about its own correctness, as a record and as a table: the manifest's parity figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from shard_export.library.counts import counted
from shard_export.library.manifest import EndToEnd, Manifest, Parity, library_digest

if TYPE_CHECKING:
    from rich.table import Table


class UnitReport(msgspec.Struct, frozen=True):
    """One unit: how it is stored and how far it is from transformers; `parity` None when the manifest says nothing."""

    name: str
    mode: str
    bits_per_weight: float
    size_bytes: int
    parity: Parity | None


class LibraryReport(msgspec.Struct, frozen=True):
    """A library in figures. `largest_fp32_error` is that of the worst unit, before compression."""

    model_id: str
    family: str
    role: str
    library_digest: str
    layer_count: int
    context_tokens: int
    size_bytes: int
    units: list[UnitReport]
    largest_fp32_error: float | None
    end_to_end: EndToEnd | None
    texts_compared: int


def report_of(manifest: Manifest) -> LibraryReport:
    """Collect the figures of a manifest."""
    units = [
        UnitReport(unit.name, unit.compression.mode, unit.compression.bits_per_weight, unit.size_bytes, unit.parity)
        for unit in manifest.units
    ]
    return LibraryReport(
        model_id=manifest.model_id,
        family=manifest.family,
        role=manifest.role,
        library_digest=library_digest(manifest),
        layer_count=manifest.layer_count,
        context_tokens=manifest.context_tokens,
        size_bytes=sum(record.size_bytes for record in manifest.files()),
        units=units,
        largest_fp32_error=max((unit.parity.fp32_error for unit in units if unit.parity), default=None),
        end_to_end=manifest.end_to_end,
        texts_compared=manifest.tokens.texts_compared,
    )


def unit_table(report: LibraryReport) -> Table:
    """Lay the units out, one a row; errors are relative to transformers."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("unit")
    table.add_column("stored as")
    for heading in ("bits/weight", "MB", "error before", "after compression"):
        table.add_column(heading, justify="right")
    for unit in report.units:
        errors = ("", "") if unit.parity is None else (unit.parity.fp32_error, unit.parity.compressed_error)
        shown = [f"{error:.1e}" if isinstance(error, float) else "not recorded" for error in errors]
        table.add_row(unit.name, unit.mode, f"{unit.bits_per_weight:.2f}", f"{unit.size_bytes / 1e6:.1f}", *shown)
    return table


def end_to_end_lines(report: LibraryReport) -> list[str]:
    """Say in a few lines what the whole was compared on and how it came out."""
    whole = report.end_to_end
    if whole is None:
        return ["The library as a whole was not compared with transformers."]
    far = f" up to position {whole.highest_position}" if whole.highest_position else ""
    positions = counted(whole.positions, "position")
    lines = [
        f"End to end on {positions}{far}: {whole.fp32_error:.1e} relative error before compression,",
        f"then {whole.top1_agreement:.1%} top-1 agreement and a mean KL of {whole.mean_kl:.4f}.",
    ]
    if report.texts_compared:
        compared = counted(report.texts_compared, "conversation or text", "conversations and texts")
        lines.append(f"{compared} became the same tokens as in transformers.")
    return lines
