"""The command line: events, sentences, exit codes, and a kill that leaves no library."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from shard_export.cli import main
from shard_export.library.store import load_manifest, work_folder_of
from tests.support.checkpoints import edit_weights, make_checkpoint

if TYPE_CHECKING:
    from pathlib import Path


def test_events_are_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_checkpoint(tmp_path / "model")
    assert main(["build", str(source), str(tmp_path / "out"), "--json-events"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["type"] for event in events] == ["started", "layer", "layer", "published"]
    assert main(["verify", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    for words in ("2 layers", "layer-001", "rope-full", "End to end on 192 positions up to position 255"):
        assert words in shown
    assert main(["verify", str(tmp_path / "out"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["largest_fp32_error"] < 1e-4
    assert record["end_to_end"]["highest_position"] == 255
    assert record["texts_compared"] > 20


def test_an_error_is_one_sentence_and_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = make_checkpoint(tmp_path / "model")
    edit_weights(source, model__norm__weight=None)
    capsys.readouterr()  # transformers shows a bar while it writes
    assert main(["build", str(source), str(tmp_path / "out"), "--json-events"]) == 3
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1
    assert "model.norm.weight" in shown.err
    assert json.loads(shown.out.splitlines()[-1])["type"] == "failed"
    assert main(["verify", str(tmp_path / "out")]) == 7


def test_the_families_are_listed_with_what_was_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families"]) == 0
    shown = capsys.readouterr().out
    for word in ("gemma3_text", "eager", "longrope", "qwen3_next cannot be exported"):
        assert word in shown
    assert main(["families", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert {"name", "attention", "ropes", "sliding", "experts", "paged", "max_error"} < set(table["exported"][0])
    assert "lfm2" in table["refused"]


def test_help_and_verify_do_not_load_torch(tmp_path: Path) -> None:
    code = (
        "import sys; from shard_export.cli import main; main(['verify', sys.argv[1]]); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers', 'openvino')))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
@pytest.mark.parametrize(
    ("sent", "status"), [pytest.param(signal.SIGKILL, -9, marks=pytest.mark.slow), (signal.SIGINT, 130)]
)
def test_a_build_that_is_ended_leaves_no_library(tmp_path: Path, sent: signal.Signals, status: int) -> None:
    source = make_checkpoint(tmp_path / "model", num_hidden_layers=8)
    command = [sys.executable, "-m", "shard_export", "build", str(source), str(tmp_path / "out"), "--json-events"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["type"] == "layer":
                process.send_signal(sent)
                break
        assert process.wait(60) == status
    assert not (tmp_path / "out").exists()
    assert work_folder_of(tmp_path / "out").exists()  # what is finished is kept
    assert main(["build", str(source), str(tmp_path / "out"), "--json-events"]) == 0
    assert load_manifest(tmp_path / "out").layer_count == 8
    assert not work_folder_of(tmp_path / "out").exists()
