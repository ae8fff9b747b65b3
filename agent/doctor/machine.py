"""Checks of the PC itself: disk, memory, devices, the store's files, one real token. Blocking ones run in threads."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
import time
from pathlib import Path

import psutil

from agent.devices import find_devices
from agent.doctor.findings import Finding, fine, problem, unknown
from agent.link.manifests import parse_manifest
from agent.link.store import Store
from agent.link.store_errors import StoreError
from agent.stage.errors import StageError
from agent.stage.process import StageProcess
from agent.stage.types import Epoch, PipelineId, StageSpec
from agent.volunteer.memory_book import MemoryBook
from shard_export.library.counts import counted
from shard_export.library.manifest import Manifest

LITTLE_DISK_BYTES = 5_000_000_000
LITTLE_MEMORY_BYTES = 2 << 30
MAX_MANIFEST_BYTES = 32 << 20
_BLOCK_BYTES = 1 << 20


def check_disk(folder: Path) -> list[Finding]:
    """Can the data folder be written, and is there room?"""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor.") as file:
            file.write(b"x")
            file.flush()
    except OSError as error:
        said = f"{folder} cannot be written ({error.strerror})"
        return [problem("disk", said, "Give this user the right to write there, or choose another folder with --data.")]
    free = shutil.disk_usage(folder).free
    said = f"{free / 1e9:.1f} GB free for {folder}"
    if free < LITTLE_DISK_BYTES:
        return [problem("disk", said, "Free some space: a model's layers take gigabytes.")]
    return [fine("disk", said)]


def check_memory(book: MemoryBook) -> list[Finding]:
    """Is there memory for a stage now?"""
    memory, budget = psutil.virtual_memory(), book.budget()
    said = (
        f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB are available, "
        f"{budget.size_bytes / 1e9:.1f} GB for stages because of {budget.limited_by}"
    )
    if budget.size_bytes < LITTLE_MEMORY_BYTES:
        return [problem("memory", said, "Close programs, or raise memory_mb in agent.toml if it is set.")]
    return [fine("memory", said)]


def check_devices() -> list[Finding]:
    """Which devices can compute, and does any driver fail to answer?"""
    import openvino

    core = openvino.Core()
    usable = {device.name: device for device in find_devices()}
    found = []
    for name in core.available_devices:
        if name in usable:
            device = usable[name]
            driver = f", driver {device.memory.driver}" if device.memory.driver else ""
            found.append(fine("device", f"{name}: {device.full_name}{driver}; {', '.join(device.engines)}"))
            continue
        try:
            core.get_property(name, "FULL_DEVICE_NAME")
        except RuntimeError:
            found.append(problem("device", f"{name} does not answer", "Update or reinstall its driver, then restart."))
        else:
            found.append(unknown("device", f"{name} is there, but no engine runs on it"))
    return found or [problem("device", "OpenVINO finds no device", "Reinstall Fallow.")]


def check_store(folder: Path) -> list[Finding]:
    """Are the model files what their names promise? Reads them all; damaged ones are fetched again when needed."""
    try:
        store = Store(folder)
        names = store.held()
        damaged = [name for name in names if _sha256(store.path(name)) != name]
        for name in damaged:
            store.path(name).unlink()
    except (StoreError, OSError) as error:
        return [problem("files", str(error), "Check the disk and the folder's rights.")]
    if damaged:
        said = f"{len(damaged)} of {counted(len(names), 'model file was', 'model files were')} damaged and are deleted"
        return [problem("files", said, "They are fetched again when needed; if it comes back, check the disk.")]
    return [fine("files", f"{counted(len(names), 'model file is', 'model files are')} as their SHA-256 says")]


async def check_token(folder: Path, threads: int = 0) -> list[Finding]:
    """Does a token come through a layer this PC holds? Loads one layer into a process of its own for a moment."""
    store = Store(folder)
    held = _held_layer(store)
    if held is None:
        return [unknown("token", "this PC holds no layer yet", "Deploy a model that uses this PC, then ask again.")]
    digest, manifest, layer = held
    name = f"doctor-{digest[:16]}"
    started_s = time.perf_counter()
    try:
        path = store.materialise(digest, manifest.units_of_range(layer, layer + 1), name)
        spec = StageSpec(
            str(path), layer, layer + 1, PipelineId(0), Epoch(0), 0, context_tokens=64, streams=1, threads=threads
        )
        child = await StageProcess.start(spec, on_frame=lambda _: None, on_exit=lambda _: None)
        await child.close()
    except (StageError, StoreError) as error:
        advice = "Update the device's driver and Fallow; `files` above says whether the model's files are whole."
        return [problem("token", f"layer {layer} of {manifest.model_id} does not run: {error}", advice)]
    finally:
        store.discard_stage(name)
    took_s = time.perf_counter() - started_s
    said = f"one came through layer {layer} of {manifest.model_id} ({child.report.engine} on {child.report.device}"
    return [fine("token", f"{said}, {took_s:.1f} s with loading)")]


def _held_layer(store: Store) -> tuple[str, Manifest, int] | None:
    """Find a layer whose files are all here, inside a model rather than at its end: those need no head."""
    for digest in store.held():
        if store.path(digest).stat().st_size > MAX_MANIFEST_BYTES:
            continue
        with contextlib.suppress(StoreError):
            manifest = parse_manifest(store.read(digest))
            for layer in range(manifest.layer_count):
                units = manifest.units_of_range(layer, layer + 1)
                files = [record for unit in units for record in (unit.xml, unit.bin)]
                if all(store.has(record.sha256, record.size_bytes) for record in files):
                    return digest, manifest, layer
    return None


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
