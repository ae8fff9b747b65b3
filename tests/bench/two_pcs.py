"""The fleet the benchmarks measure: two PCs of one core each, and the ways to spread the model over them.

One console can serve several side by side, each under a name of its own. Only the one that is asked answers, but each
has a pulse.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

from console.api.admin import types as wire
from installer.loopback import AgentSettings, LoopbackFleet
from shard_export.library.manifest import MANIFEST_NAME, encode_manifest
from shard_export.library.store import load_manifest

PCS = ("pc-0", "pc-1")
MOST_STREAMS = 16
CONTEXT_TOKENS = 2560


def two_pcs(cores: Sequence[int]) -> list[AgentSettings]:
    """Describe two agents that compute with one thread, each on its own core where there are two."""
    return [AgentSettings(name, 1, [cores[index % len(cores)]]) for index, name in enumerate(PCS)]


def named_copy(library: Path, out: Path, model_id: str) -> Path:
    """Make the same library under another name, sharing its files."""
    manifest = load_manifest(library)
    for file in library.rglob("*"):
        if file.is_file() and file.name != MANIFEST_NAME:
            target = out / file.relative_to(library)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(file.resolve(), target)
            except OSError:  # another disk
                shutil.copyfile(file, target)
    renamed = msgspec.structs.replace(manifest, model_id=model_id)
    (out / MANIFEST_NAME).write_bytes(encode_manifest(renamed))
    return out


def deploy(fleet: LoopbackFleet, library: Path, root: Path, wanted: Mapping[str, Mapping[str, Any]]) -> None:
    """Deploy the library once for each name of `wanted`, with that name's settings (`pcs`: names of agents)."""
    devices = {agent.name: agent.device_id for agent in fleet.admin.agents()}
    for name, settings in wanted.items():
        fleet.admin.add_library(named_copy(library, root / name, name))
        fields = dict(settings)
        pcs = [devices[pc] for pc in fields.pop("pcs", PCS)]
        fleet.deploy(wire.DeployRequest(model=name, devices=pcs, **fields))


def pipeline(fleet: LoopbackFleet, name: str) -> wire.PipelineView:
    """Find a deployment's status."""
    return next(view for view in fleet.admin.status().pipelines if view.model == name)


def peak_memory_mb(fleet: LoopbackFleet) -> dict[str, float]:
    """Return the peak resident memory in MB (2**20 bytes) of the console, the agents and the stages under them."""
    found = {"console": peak_mb(psutil.Process(fleet.process("console").pid))}
    for name in PCS:
        agent = psutil.Process(fleet.process(name).pid)
        found[name] = peak_mb(agent)
        for index, child in enumerate(agent.children(recursive=True)):
            found[f"{name} stage {index}"] = peak_mb(child)
    return found


def peak_mb(process: psutil.Process) -> float:
    """Return the peak resident memory of a process in MB (2**20 bytes)."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text()
        kib = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        info = process.memory_info()
        kib = getattr(info, "peak_wset", info.rss) // 1024
    return round(kib / 1024, 1)
