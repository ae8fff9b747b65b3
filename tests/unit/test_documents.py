"""What documents say of commands is so, every command is in one, and every folder with code says what it is for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.documents import ROOT, Code, Judge, code_of, documents, known_commands, words_of

PACKAGES = ("agent", "console", "installer", "shard_export", "tests")
LINK = re.compile(r"\]\(([^):#\s]+)(?:#[^)]*)?\)")


def names(paths: list[Path]) -> list[str]:
    """Paths below the root, for the tests' names."""
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.fixture(scope="module")
def judge() -> Judge:
    """The judge, with the parsers of all programs."""
    return Judge()


@pytest.mark.parametrize("name", names(documents()))
def test_every_command_and_option_of_a_document_exists(name: str, judge: Judge) -> None:
    wrong = [f"`{code.text}`: {fault}" for code in code_of(ROOT / name) for fault in judge.faults(code)]
    assert not wrong, "\n".join(wrong)


def test_every_command_is_in_a_document() -> None:
    said = [words_of(code.text) for path in documents() for code in code_of(path)]
    missing = [
        " ".join(words)
        for words, command in known_commands().items()
        if command.runs and not any(words == tuple(spoken[: len(words)]) for spoken in said)
    ]
    assert not missing, f"tell in a README what these are for, written whole like `{missing[0]}`: {missing}"


@pytest.mark.parametrize("name", names(documents()))
def test_every_link_of_a_document_leads_somewhere(name: str) -> None:
    path = ROOT / name
    lost = [target for target in LINK.findall(path.read_text(encoding="utf-8")) if not (path.parent / target).exists()]
    assert not lost


def test_every_folder_with_code_says_what_it_is_for() -> None:
    folders = {path.parent for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    # The folders of tests/unit are those of the code.
    folders = {folder for folder in folders if folder.relative_to(ROOT).parts[:2] != ("tests", "unit")}
    silent = [folder for folder in folders | {ROOT / "tests" / "unit"} if not (folder / "README.md").exists()]
    assert not names(sorted(silent))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("fallow-console serve --cors-origins X", "fallow-console serve has no --cors-origins"),
        ("fallow-console deployment MODEL", "fallow-console has no deployment"),
        ("fallow-console build begin", "fallow-console build has no begin"),
        ("fallow-agent enrol --days 3 # a comment", "fallow-agent enrol has no --days"),
        ("serve --no-such", "has no --no-such"),
        ("--no-such-option", "no program has --no-such-option"),
        ("FALLOW_X=1 python -m tests.bench fleet --round 1", "has no --round"),
        ("python -m tests.benches fleet", "there is no tests.benches"),
        ("python installer/bootstrap.py set-up", "bootstrap.py has no set-up"),
        ("bootstrap.py demo --window", "has no --window"),
    ],
)
def test_what_does_not_exist_is_found(text: str, fault: str, judge: Judge) -> None:
    (found,) = judge.faults(Code("made up", text))
    assert fault in found


@pytest.mark.parametrize(
    "text",
    [
        'fallow-console plan what-if --at "Tue 09:00"',
        "fallow-console --data DIR status --json | less --chop",
        "deploy --standbys N --standby hot|warm",
        "curl http://127.0.0.1:8460/healthz --fail",
        "python installer/bootstrap.py test --slow -k frames",
        "python -m pytest --slow",
        "fallow-console COMMAND --help",
        "it's no shell --json",
        "{'pinned': true}",
    ],
)
def test_what_exists_and_what_is_not_ours_is_left_alone(text: str, judge: Judge) -> None:
    assert not judge.faults(Code("made up", text))
