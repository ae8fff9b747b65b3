"""What each bundle is made of: its programs, what is imported by name only, what is left out. Pure.

A bundle is one folder with several programs that share everything below `_internal/`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Program:
    """One executable: `module` is run as `python -m` would; a windowed one gets no terminal on Windows."""

    name: str
    module: str
    windowed: bool = False


@dataclass(frozen=True)
class Role:
    """A bundle. `extras` are those of pyproject.toml; `hidden` modules are imported by name at run time.

    `children` are the modules that its programs start as processes of their own, with `-m`. `data` are folders of a
    package whose files are read as files; `excluded` modules are never wanted, though something would import them.
    """

    name: str
    title: str
    extras: tuple[str, ...]
    programs: tuple[Program, ...]
    children: tuple[str, ...]
    hidden: tuple[str, ...]
    excluded: tuple[str, ...]
    data: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    """Patterns of files that this bundle does without, beside those of trimming.py."""
    brings_wheel: bool = False
    """Whether this tree's wheel lies in the bundle, for a venv with what the bundle leaves out."""
    limit_mb: int = 0
    """What the unpacked bundle may take (10^6 bytes); 0: not limited."""


# What a plain `import openvino` would carry along for converting models of other frameworks, which is the exporter's.
_NEVER = (
    "IPython", "matplotlib", "pandas", "pytest", "scipy", "setuptools", "tkinter", "torch", "transformers", "nncf",
    "openvino.frontend.jax", "openvino.frontend.pytorch", "openvino.frontend.tensorflow", "openvino.tools.ovc",
    "PySide6.QtDBus", "PySide6.QtDesigner", "PySide6.QtNetwork", "PySide6.QtOpenGL", "PySide6.QtOpenGLWidgets",
    "PySide6.QtPrintSupport", "PySide6.QtQml", "PySide6.QtQuick", "PySide6.QtSql", "PySide6.QtTest",
    # Parts of Python that are about terminals and old networks, and bring libraries along.
    "curses", "nis", "readline",
)  # fmt: skip
_WINDOWS_OF_THE_CONSOLE = ("markdown_it", "pygments", "pyqtgraph", "segno")
_SERVICE = ("alembic", "httpx2", "sqlalchemy", "starlette", "uvicorn", "psycopg", "prometheus_client", "tokenizers")

AGENT = Role(
    name="agent",
    title="Fallow agent",
    extras=("gui",),
    programs=(Program("fallow-agent", "agent"), Program("fallow-tray", "agent.tray.app", windowed=True)),
    children=("agent", "agent.devices", "agent.stage.benchmark", "agent.stage.worker", "agent.update.worker"),
    hidden=(),
    excluded=(*_NEVER, *_WINDOWS_OF_THE_CONSOLE, *_SERVICE, "console", "shard_export.build", "shard_export.cli"),
    # Its windows show drawings of ours, no pictures.
    dropped=("*/imageformats/*jpeg*", "*/imageformats/*webp*", "*/imageformats/*gif*", "*/imageformats/*ico.*"),
    limit_mb=320,
)
CONSOLE = Role(
    name="console",
    title="Fallow console",
    extras=("console", "gui"),
    programs=(
        Program("fallow-console", "console"),
        Program("fallow-console-window", "console", windowed=True),
    ),
    children=("agent.stage.worker",),
    hidden=(
        "console.gui.app",
        "psycopg",
        "psycopg_binary",
        "psycopg_binary._psycopg",
        "sqlalchemy.dialects.postgresql.psycopg",
        "sqlalchemy.dialects.sqlite.pysqlite",
    ),
    excluded=(*_NEVER, "agent.tray", "console.chat.app", "shard_export.build", "shard_export.cli"),
    data=("console/registry/migrations",),
    brings_wheel=True,
)
CHAT = Role(
    name="chat",
    title="Fallow chat",
    extras=("gui",),
    programs=(Program("fallow-chat", "console.chat.app", windowed=True),),
    children=(),
    hidden=(),
    excluded=(*_NEVER, "openvino", "agent.tray", "console.gui", "pyqtgraph", "sqlalchemy", "shard_export.build"),
)


def modules_of(role: Role) -> list[str]:
    """Return what PyInstaller must be told to take, because no import statement of the entry script names it."""
    started = [*(program.module for program in role.programs), *role.children]
    mains = [f"{module}.__main__" for module in started if module in {"agent", "console"}]
    return sorted({*started, *mains, *role.hidden})


ROLES = {role.name: role for role in (AGENT, CONSOLE, CHAT)}
