"""A power cut at any step that changes a folder or the keyring: from then on nothing changes any more."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from keyring.backend import KeyringBackend


class PowerCut(BaseException):
    """The program is gone: nothing catches it, and what it would still do has no effect."""


class Power:
    """Cut before the `cut_at`-th step (from 1) below `folder`; a cut while a file is being flushed tears it.

    Steps are the calls of the operating system that change something; the keyring's count, too, before and after.
    """

    STEPS = ("open", "mkdir", "chmod", "replace", "rename", "unlink", "remove", "rmdir", "link", "symlink", "fsync")

    def __init__(self, folder: Path, cut_at: int) -> None:
        self._folder, self._cut_at = folder, cut_at
        self._steps = 0
        self._handles = set[int]()
        self.is_cut = False

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Count and cut inside the block."""
        with pytest.MonkeyPatch.context() as patch:
            for name in self.STEPS:
                patch.setattr(os, name, self._counted(name, getattr(os, name)))
            with contextlib.suppress(PowerCut):
                yield

    def step(self) -> bool:
        """Count one step; returns whether it still has an effect."""
        self._steps += 1
        self.is_cut = self.is_cut or self._steps == self._cut_at
        return not self.is_cut

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(where: Any, *arguments: Any, **options: Any) -> Any:
            if not self._is_ours(where):
                return call(where, *arguments, **options)
            was_cut = self.is_cut
            if not self.step():
                if name == "fsync" and not was_cut:
                    with contextlib.suppress(OSError):  # a folder
                        os.ftruncate(where, os.fstat(where).st_size // 2)
                raise PowerCut
            result = call(where, *arguments, **options)
            if name == "open":
                self._handles.add(result)
            return result

        return counted

    def _is_ours(self, where: Any) -> bool:
        if isinstance(where, int):
            return where in self._handles
        return Path(os.fsdecode(where)).is_relative_to(self._folder)


class KeyringWithPower(KeyringBackend):
    """A keyring in memory whose changes are steps of `power`, if there is one."""

    priority = 1

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # the library's own class
        self.entries: dict[str, str] = {}
        self.power: Power | None = None

    def get_password(self, service: str, username: str) -> str | None:
        return self.entries.get(service)

    def set_password(self, service: str, username: str, password: str) -> None:
        self._step()
        self.entries[service] = password
        self._step()

    def delete_password(self, service: str, username: str) -> None:
        self._step()
        del self.entries[service]
        self._step()

    def _step(self) -> None:
        # An ordinary error, because keyrings are asked in a thread of their own; the next step on the disk ends all.
        if self.power is not None and not self.power.step():
            raise OSError("The power is cut.")
