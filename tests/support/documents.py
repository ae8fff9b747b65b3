"""What the documents say of commands: code spans and fences of every README, judged by the programs' own parsers.

`Judge.faults(text)` names what a piece of code in a document gets wrong: a subcommand or an option that does not exist.
A word in capitals stands for something that the reader fills in. Options of other programs are theirs.
"""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from installer.bootstrap import build_setup_parser
from installer.demo import build_parser as build_demo_parser
from installer.programs import PROGRAMS, Command, all_commands, walk

ROOT = Path(__file__).resolve().parent.parent.parent
FOREIGN = frozenset(
    {
        "apt-get",
        "codesign",
        "curl",
        "dotnet",
        "export",
        "git",
        "gpg",
        "head",
        "installer",
        "journalctl",
        "launchctl",
        "lint-imports",
    }
    | {"man", "msiexec", "mypy", "pip", "pkgbuild", "productbuild", "pytest", "ruff", "signtool", "sudo", "systemctl"}
    | {"systemd-creds", "tar", "uninstall.sh", "wix", "xcrun"}
)
"""Programs whose options are not ours to know."""
RUN_AS_MODULES = (
    "installer.build",
    "installer.man_pages",
    "installer.packaging.msi",
    "installer.packaging.pkg",
    "installer.release",
    "tests.bench.__main__",
    "tests.fuzz.__main__",
)
_OPTION = re.compile(r"--[a-z][a-z0-9-]+")
_FENCE = re.compile(r"^```[a-z]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SPAN = re.compile(r"(?<!`)`((?:[^`\n]|\n(?!\n))+)`(?!`)")
_ENDS = frozenset({"|", "||", "&&", ";", "&", ">", "<"})


@dataclass(frozen=True)
class Code:
    """One command or piece of one, and the document it is in."""

    document: str
    text: str


def documents() -> list[Path]:
    """Return every document of the tree that is for people; what tools leave behind is none."""
    folders = [
        folder for folder in ROOT.iterdir() if folder.is_dir() and folder.name[0] != "." and folder.name != "build"
    ]
    return sorted([*ROOT.glob("*.md"), *(path for folder in folders for path in folder.rglob("*.md"))])


def code_of(path: Path) -> Iterator[Code]:
    """Give the lines of all fences, continued ones whole, and the spans outside of them."""
    text = path.read_text(encoding="utf-8")
    name = str(path.relative_to(ROOT))
    for fence in _FENCE.findall(text):
        for line in fence.replace("\\\n", " ").splitlines():
            if line.strip():
                yield Code(name, line.strip())
    for span in _SPAN.findall(_FENCE.sub("", text)):
        yield Code(name, " ".join(span.split()))


def fences(path: Path) -> list[str]:
    """Return the contents of all fences of a document, as written."""
    return [str(fence) for fence in _FENCE.findall(path.read_text(encoding="utf-8"))]


def words_of(text: str) -> list[str]:
    """Split a command as a shell would, up to the end of its first command; what is no shell is split at spaces."""
    try:
        words = shlex.split(text, comments=True)
    except ValueError:
        words = text.split()
    end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
    return words[:end]


@cache
def known_commands() -> dict[tuple[str, ...], Command]:
    """Return every command of every program by its words."""
    return {command.words: command for program in PROGRAMS for command in all_commands(program)}


class Judge:
    """Judges pieces of code of documents."""

    def __init__(self) -> None:
        commands = known_commands()
        self._commands = commands
        self._options = frozenset(option for command in commands.values() for option in command.options)
        self._heads: dict[str, list[Command]] = {}
        for words, command in commands.items():
            if len(words) > 1:
                self._heads.setdefault(words[1], []).append(command)

    def faults(self, code: Code) -> list[str]:
        """Name what is wrong with a piece of code; nothing, if it is right or not ours."""
        words = words_of(code.text)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            del words[0]
        if not words or words[0] in FOREIGN or words[:3] == ["python", "-m", "pytest"]:
            return []
        if words[0] == "python" or words[0].startswith(("bootstrap.py", "installer/")):
            return _python_faults(words)
        if (words[0],) in self._commands:
            return self._command_faults(self._commands[(words[0],)], words[1:])
        if words[0] in self._heads:
            return self._shortened_faults(words)
        return [
            f"no program has {option}"
            for option in (found for word in words for found in _OPTION.findall(word))
            if option not in self._options | _other_options()
        ]

    def _command_faults(self, command: Command, rest: list[str]) -> list[str]:
        taken, words, before = set(command.options), list(rest), list[str]()
        while words and command.subcommands:
            word = words.pop(0)
            if word.startswith("-"):
                before.append(word)
                # Its value, unless it takes none.
                before += [words.pop(0)] if words and words[0] not in command.subcommands else []
                continue
            if word not in command.subcommands:
                return [] if word in ("...", "…") or word.isupper() else [f"{' '.join(command.words)} has no {word}"]
            command = self._commands[(*command.words, word)]
            taken |= command.options
        words = before + words
        return _unknown_options(command, taken, words)

    def _shortened_faults(self, words: list[str]) -> list[str]:
        """Judge `serve --models DIR`, without the program: some command of that name has to take all of it."""
        verdicts = [self._command_faults(self._commands[one.words[:1]], words) for one in self._heads[words[0]]]
        return min(verdicts, key=len)


def _unknown_options(command: Command, taken: set[str], words: list[str]) -> list[str]:
    options = [option for word in words for option in _OPTION.findall(word.partition("=")[0])]
    return [f"{' '.join(command.words)} has no {option}" for option in options if option not in taken]


@cache
def _other_options() -> frozenset[str]:
    """Return the options of what is run with `python`, which sentences mention by themselves."""
    parsers = [build_setup_parser(), build_demo_parser()]
    parsers += [importlib.import_module(name).build_parser() for name in RUN_AS_MODULES]
    options = {option for parser in parsers for option in Command(("",), "", parser).options}
    return frozenset(options | {"--slow"})


def _python_faults(words: list[str]) -> list[str]:
    """Judge `python -m MODULE ...` and `python installer/FILE.py ...`."""
    words = words[words[0] == "python" :]
    if words[:1] == ["-m"]:
        module, rest = words[1], words[2:]
    else:
        file = "".join(words[:1])
        module, rest = file.removesuffix(".py").replace("/", "."), words[1:]
    if module.partition(".")[0] not in ("bootstrap", "installer", "tests", "agent", "console", "shard_export"):
        return []
    if module in ("bootstrap", "installer.bootstrap"):
        return _bootstrap_faults(rest)
    names = [name for name in (module, f"{module}.__main__") if (ROOT / f"{name.replace('.', '/')}.py").exists()]
    return _module_faults(names[0], rest) if names else [f"there is no {module}"]


def _bootstrap_faults(rest: list[str]) -> list[str]:
    parsers = {"setup": build_setup_parser, "demo": build_demo_parser}
    if not rest or rest[0] == "test":  # what follows is pytest's
        return []
    if rest[0] not in parsers:
        return [f"bootstrap.py has no {rest[0]}"]
    return _unknown(Command(("bootstrap.py", rest[0]), "", parsers[rest[0]]()), rest[1:])


def _module_faults(module: str, rest: list[str]) -> list[str]:
    if not any(_OPTION.match(word) for word in rest):
        return []
    return _unknown(Command((module,), "", importlib.import_module(module).build_parser()), rest)


def _unknown(whole: Command, rest: list[str]) -> list[str]:
    taken = {option for command in walk(whole) for option in command.options}
    return _unknown_options(whole, taken, rest)
