"""What of the console's disk people may see and have written: only what is below one folder. Blocks on the disk."""

from __future__ import annotations

import itertools
from pathlib import Path

from console.api.admin.build_types import Entry, EntryKind, Folder
from console.builds.checkpoints import is_checkpoint, weight_bytes
from console.errors import BuildRefused
from shard_export.library.manifest import MANIFEST_NAME

MAX_ENTRIES = 1000


class Places:
    """Everything below `root`, links followed, but what is hidden there."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def place(self, text: str) -> Path:
        """Return a path that may be used, links followed. Raises BuildRefused."""
        path = Path(text)
        found = _resolved(path) if path.is_absolute() else None
        if found is None or not found.is_relative_to(self.root):
            raise BuildRefused(
                f"{text[:200]} is not below {self.root}, the folder for models on the console's PC; copy it there, or "
                "start the console with another one: fallow-console serve --models FOLDER"
            )
        if self._is_hidden(found):
            raise BuildRefused(
                f"{text[:200]} is hidden: no folder below {self.root} whose name begins with a dot is used; copy it to "
                "another one, or start the console there: fallow-console serve --models FOLDER"
            )
        return found

    def look(self, text: str) -> Folder:
        """List a folder (empty: the root); a GGUF file is one without anything in it. Raises BuildRefused."""
        path = self.place(text) if text else self.root
        itself = _entry(path)
        kind: EntryKind = "folder" if itself is None else itself.kind
        parent = "" if path == self.root else str(path.parent)
        if kind == "gguf":
            return Folder(str(self.root), str(path), parent, [], kind)
        try:
            # One more than is shown says that there is more.
            found = list(itertools.islice((one for one in path.iterdir() if self._is_shown(one)), MAX_ENTRIES + 1))
            entries = [entry for one in found[:MAX_ENTRIES] if (entry := _entry(one)) is not None]
        except OSError as error:
            raise BuildRefused(f"{path} cannot be listed ({error.strerror}); choose another folder.") from None
        entries.sort(key=lambda entry: (entry.kind == "file", entry.name.lower()))
        return Folder(str(self.root), str(path), parent, entries, kind, len(found) > MAX_ENTRIES)

    def _is_shown(self, path: Path) -> bool:
        if path.name.startswith("."):
            return False
        if not path.is_symlink():
            return True
        found = _resolved(path)
        return found is not None and found.is_relative_to(self.root) and not self._is_hidden(found)

    def _is_hidden(self, path: Path) -> bool:
        """Whether a path below the root is one of those that programs keep their keys and settings in."""
        return any(part.startswith(".") for part in path.relative_to(self.root).parts)


def _resolved(path: Path) -> Path | None:
    """Follow the links of a path; None where that is not possible."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):  # a null byte, a loop of links
        return None


def _entry(path: Path) -> Entry | None:
    """Describe one thing; None for what cannot be looked at or is neither file nor folder."""
    try:
        if path.is_dir():
            kind: EntryKind = "folder"
            if (path / MANIFEST_NAME).is_file():
                kind = "library"
            elif is_checkpoint(path):
                return Entry(path.name, "checkpoint", weight_bytes(path))
            return Entry(path.name, kind)
        if path.is_file():
            return Entry(path.name, "gguf" if path.suffix.lower() == ".gguf" else "file", path.stat().st_size)
    except OSError:
        return None
    return None
