"""console.chat.app: the process and its options."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from console.chat.app import main


@pytest.mark.parametrize("words", ["", "hello\n", "https://console.example/#pin=12&key=secret-of-mine\n"])
def test_what_is_no_link_is_refused_and_not_repeated(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(words))
    assert main(["--link-from-stdin", "--data", str(tmp_path / "chat")]) == 2
    said = capsys.readouterr().err
    assert "This is no chat link" in said
    assert "secret-of-mine" not in said
    assert not (tmp_path / "chat").exists()
