"""What `verify` shows: the parity record of a manifest."""

from __future__ import annotations

import json

import msgspec
from rich.console import Console

from shard_export.library.manifest import (
    Compression,
    EndToEnd,
    FileRecord,
    Manifest,
    Parity,
    Tokens,
    Unit,
    library_digest,
)
from shard_export.library.report import end_to_end_lines, report_of, unit_table


def make_unit(name: str, parity: Parity | None) -> Unit:
    record = FileRecord(f"units/{name}", 500_000, "0" * 64)
    return Unit(name, "layer", 0, record, record, Compression("int4_asym", 5.125), parity=parity)


def make_manifest(*units: Unit, end_to_end: EndToEnd | None = None, texts_compared: int = 0) -> Manifest:
    return Manifest(
        format_version=1,
        model_id="tiny",
        revision="",
        family="llama",
        layer_count=len(units),
        hidden_size=64,
        vocab_size=300,
        context_tokens=8192,
        units=list(units),
        tokens=Tokens([], [2], 1, None, False, "", texts_compared),
        versions={},
        end_to_end=end_to_end,
    )


def shown(manifest: Manifest) -> str:
    console = Console(width=100)
    report = report_of(manifest)
    with console.capture() as capture:
        console.print(unit_table(report))
    return capture.get() + "\n".join(end_to_end_lines(report))


def test_the_table_names_each_unit_with_both_errors_and_the_whole() -> None:
    manifest = make_manifest(
        make_unit("layer-000", Parity(5.5e-7, 0.04)),
        make_unit("layer-001", None),
        end_to_end=EndToEnd(192, 0.75, 0.25, 7e-7, 8191),
        texts_compared=26,
    )
    text = shown(manifest)
    row = next(line.split() for line in text.splitlines() if line.startswith("layer-000"))
    assert row == ["layer-000", "int4_asym", "5.12", "1.0", "5.5e-07", "4.0e-02"]
    assert "not recorded" in text
    for words in ("192 positions up to position 8191", "7.0e-07", "75.0% top-1", "KL of 0.2500", "26 conversations"):
        assert words in text


def test_a_library_without_a_record_says_so() -> None:
    manifest = make_manifest(make_unit("layer-000", None))
    assert "was not compared" in shown(manifest)
    assert report_of(manifest).largest_fp32_error is None


def test_the_record_is_plain_json() -> None:
    manifest = make_manifest(make_unit("a", Parity(1e-7, 0.1)), make_unit("b", Parity(3e-7, 0.2)))
    record = json.loads(msgspec.json.encode(report_of(manifest)))
    assert record["library_digest"] == library_digest(manifest)
    assert record["largest_fp32_error"] == 3e-7
    assert record["units"][1]["parity"] == {"fp32_error": 3e-7, "compressed_error": 0.2}
