"""The layer libraries this console can deploy: registered in the registry, served to agents, found by model id."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Literal

import msgspec

from console.api.admin.types import Library
from console.errors import DeployRefused
from console.fleet.distribution import Distribution
from console.fleet.errors import LibraryNotServed
from console.registry.audit import Actor
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
    manifest: Manifest


class LibraryShelf:
    """Libraries by model id; the newest of a model wins. On the service's event loop; the disk is read in threads."""

    def __init__(self, registry: Registry, distribution: Distribution) -> None:
        self._registry = registry
        self._distribution = distribution
        self._loaded: dict[str, LoadedLibrary] = {}
        self._problems: dict[str, str] = {}

    async def open(self) -> None:
        """Serve every registered library; one that cannot be read is kept with its problem."""
        for record in reversed(self._registry.libraries.list()):
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
        return self._describe(record)

    def remove(self, digest: str, actor: Actor) -> None:
        """Forget a library; its files stay. Raises NotFound, or WrongState while a deployment uses it."""
        self._registry.libraries.remove(digest, actor)
        self._distribution.unregister(digest)
        self._loaded.pop(digest, None)
        self._problems.pop(digest, None)

    def list(self) -> list[Library]:
        """Describe every registered library, the newest first."""
        return [self._describe(record) for record in self._registry.libraries.list()]

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

    def _load(self, folder: Path) -> LoadedLibrary:
        manifest = load_manifest(folder)
        return LoadedLibrary(self._distribution.register(folder), folder, manifest)

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
