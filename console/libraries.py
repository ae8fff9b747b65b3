"""The layer libraries this console can deploy: registered in the registry, served to agents, found by model id."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import msgspec

from console.api.admin.types import Library
from console.errors import DeployRefused
from console.fleet.distribution import Distribution
from console.fleet.errors import LibraryNotServed
from console.registry.audit import Actor
from console.registry.errors import RegistryError, WrongState
from console.registry.records import LibraryRecord
from console.registry.registry import Registry
from shard_export.library.errors import LibraryError
from shard_export.library.manifest import Manifest
from shard_export.library.store import load_manifest

Role = Literal["target", "draft"]

log = logging.getLogger(__name__)


class LoadedLibrary(msgspec.Struct, frozen=True):
    """A library ready to be deployed."""

    digest: str
    folder: Path
    """Where it lies, links followed."""
    manifest: Manifest


class LibraryShelf:
    """Libraries by model id; the newest of a model wins. On the service's event loop; the disk is read in threads."""

    def __init__(self, registry: Registry, distribution: Distribution) -> None:
        self._registry = registry
        self._distribution = distribution
        self._loaded: dict[str, LoadedLibrary] = {}
        self._problems: dict[str, str] = {}
        self._users: list[Callable[[str], str]] = []

    def ask_before_removing(self, user: Callable[[str], str]) -> None:
        """Ask `user` whether it uses the library of a digest: it answers with a sentence without its stop, or ""."""
        self._users.append(user)

    async def open(self) -> None:
        """Serve every registered library; one that cannot be read is kept with its problem."""
        for record in reversed(await self._registry.ask(self._registry.libraries.list)):
            try:
                self._loaded[record.digest] = await asyncio.to_thread(self._load, Path(record.folder))
            except (LibraryError, LibraryNotServed) as error:
                log.warning("The library of %s cannot be used: %s", record.model_id, error)
                self._problems[record.digest] = str(error)

    async def add(self, folder: Path, actor: Actor) -> Library:
        """Register a library folder. Raises LibraryError or LibraryNotServed."""
        loaded = await asyncio.to_thread(self._load, folder)
        model_id = loaded.manifest.model_id
        record = self._registry.libraries.add(loaded.digest, model_id, str(folder), actor)
        self._loaded[loaded.digest] = loaded
        self._problems.pop(loaded.digest, None)
        for replaced in self._in_folder(loaded.folder):
            if replaced != loaded.digest:
                self._forget_replaced(replaced, loaded.folder, actor)
        return self._describe(record)

    def remove(self, digest: str, actor: Actor) -> None:
        """Forget a library; its files stay. Raises NotFound, or WrongState while it is used."""
        if user := self._user_of(digest):
            raise WrongState(f"The library {digest[:12]} cannot be removed: {user}. Wait for that, or end it first.")
        self._registry.libraries.remove(digest, actor)
        self._distribution.unregister(digest)
        self._loaded.pop(digest, None)
        self._problems.pop(digest, None)

    async def list(self) -> list[Library]:
        """Describe every registered library, the newest first."""
        return [self._describe(record) for record in await self._registry.ask(self._registry.libraries.list)]

    def of_model(self, model_id: str, role: Role = "target") -> LoadedLibrary:
        """Return the newest usable library of a model, one made for `role` if there is. Raises DeployRefused."""
        known = [record for record in self._registry.libraries.list() if record.model_id == model_id]
        usable = [self._loaded[record.digest] for record in known if record.digest in self._loaded]
        if usable:
            return next((library for library in usable if library.manifest.role == role), usable[0])
        if known:
            raise DeployRefused(self._problems[known[0].digest])
        raise DeployRefused(
            f"There is no layer library of {model_id!r}; add its folder with: fallow-console models --add FOLDER"
        )

    def by_digest(self, digest: str) -> LoadedLibrary:
        """Return a registered library. Raises DeployRefused with what is wrong with it."""
        if digest in self._loaded:
            return self._loaded[digest]
        raise DeployRefused(self._problems.get(digest, "The layer library is not registered any more; add it again."))

    def user_of_folder(self, folder: Path) -> str:
        """Say what uses a library of this folder, as a sentence without its stop; empty: nothing does."""
        digests = self._in_folder(folder)
        found = (self._user_of(digest) or self._registry.libraries.user_of(digest) for digest in digests)
        return next(filter(None, found), "")

    def _in_folder(self, folder: Path) -> Sequence[str]:
        """Return the digests of the libraries that were read here in this folder, which has its links followed.

        Consoles that share a registry may each have another library in a folder of this name.
        """
        return [digest for digest, one in self._loaded.items() if one.folder == folder and one.digest == digest]

    def _forget_replaced(self, digest: str, folder: Path, actor: Actor) -> None:
        try:
            self.remove(digest, actor)
        except RegistryError as error:
            log.warning("%s holds another library now, and the one before is not forgotten: %s", folder, error)

    def _user_of(self, digest: str) -> str:
        return next(filter(None, (user(digest) for user in self._users)), "")

    def _load(self, folder: Path) -> LoadedLibrary:
        manifest = load_manifest(folder)
        return LoadedLibrary(self._distribution.register(folder), folder.resolve(), manifest)

    def _describe(self, record: LibraryRecord) -> Library:
        loaded = self._loaded.get(record.digest)
        if loaded is None:
            return Library.unreadable(record, self._problems.get(record.digest, ""))
        manifest = loaded.manifest
        layers = [unit for unit in manifest.units if unit.kind == "layer"]
        whole = manifest.end_to_end
        return Library(
            digest=record.digest,
            model_id=record.model_id,
            folder=record.folder,
            added_s=record.added_s,
            layer_count=manifest.layer_count,
            size_bytes=sum(file.size_bytes for file in manifest.files()),
            context_tokens=manifest.context_tokens,
            role=manifest.role,
            family=manifest.family,
            layer_mode="+".join(sorted({layer.compression.mode for layer in layers})),
            bits_per_weight=sum(layer.compression.bits_per_weight for layer in layers) / max(1, len(layers)),
            top1_agreement=None if whole is None else whole.top1_agreement,
            mean_kl=None if whole is None else whole.mean_kl,
        )
