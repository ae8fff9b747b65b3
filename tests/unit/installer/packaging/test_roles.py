"""What a bundle is made of: nothing that is started is missing, nothing heavy comes along."""

from __future__ import annotations

import ast
import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from installer.packaging.roles import AGENT, ROLES, Role, modules_of

ROOT = Path(__file__).resolve().parents[4]
# `python -m shard_export` is started by the console from source; a bundle has the exporter as a program of its own.
ELSEWHERE = {"shard_export", "console"}


def started_modules(folder: str) -> Iterator[str]:
    """Yield what the code of a folder starts as `[sys.executable, "-m", MODULE]`."""
    for path in (ROOT / folder).rglob("*.py"):
        source = path.read_text("utf-8")
        if '"-m"' not in source:
            continue
        tree = ast.parse(source)
        constants = {
            target.id: node.value.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            words = node.args if isinstance(node, ast.Call) else getattr(node, "elts", [])
            for flag, module in itertools.pairwise(words):
                if isinstance(flag, ast.Constant) and flag.value == "-m":
                    yield str(module.value if isinstance(module, ast.Constant) else constants.get(module.id))


@pytest.mark.parametrize("folder", ["agent", "console"])
def test_a_bundle_lets_in_every_module_that_its_code_starts_as_a_process(folder: str) -> None:
    found = set(started_modules(folder)) - ELSEWHERE
    assert "None" not in found
    assert found <= set(ROLES[folder].children) | set(AGENT.children)
    assert found or folder == "console"


@pytest.mark.parametrize("role", ROLES.values(), ids=list(ROLES))
def test_every_module_that_a_role_names_exists(role: Role) -> None:
    for module in modules_of(role):
        if not module.startswith(("psycopg", "sqlalchemy")):
            assert importlib.util.find_spec(module) is not None, module


@pytest.mark.parametrize("role", ROLES.values(), ids=list(ROLES))
def test_no_bundle_carries_what_only_the_exporter_needs(role: Role) -> None:
    assert {"torch", "transformers", "nncf", "shard_export.build"} <= set(role.excluded)
    assert "export" not in role.extras


def test_a_package_that_is_started_by_name_brings_its_main_module() -> None:
    assert {"agent", "agent.__main__", "agent.stage.worker"} <= set(modules_of(AGENT))
