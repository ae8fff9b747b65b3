"""The layer library the tests share, made from the sample model once per machine and exporter."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".fallow" / "tests"
# Whose versions decide what an export looks like.
TOOLS = ("openvino", "nncf", "torch", "transformers", "openvino-tokenizers", "gguf")
KEEP_LIBRARIES = 2
BUILD_TIMEOUT_S = 900.0


def cache_key(source: Path) -> str:
    """Name what the library depends on: the exporter's sources, the checkpoint, the tools."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "shard_export").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode())
        digest.update(path.read_bytes())
    with source.open("rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
    for tool in TOOLS:
        digest.update(f"{tool} {importlib.metadata.version(tool)}".encode())
    return digest.hexdigest()[:16]


def sample_library(source: Path) -> Path:
    """Give the library of a checkpoint, building it with the real command if this exporter has not yet.

    Sessions that run at the same time wait for one another. Raises `RuntimeError` with the exporter's last lines.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    library = CACHE / f"smollm2-{cache_key(source)}"
    with FileLock(CACHE / "build.lock"):
        if not (library / "manifest.json").exists():
            shutil.rmtree(library, ignore_errors=True)
            build(source, library)
            forget_old(library)
    return library


def build(source: Path, library: Path) -> None:
    """Export in a process of its own, so that torch stays out of the one that runs the tests."""
    command = [str(Path(sys.executable).with_name("fallow-export")), "build", str(source), str(library)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        lines = "\n".join((done.stdout + done.stderr).splitlines()[-20:])
        raise RuntimeError(f"fallow-export build ended with {done.returncode}:\n{lines}")


def forget_old(newest: Path) -> None:
    """Drop libraries of earlier exporters, keeping a few so that going back and forth stays quick."""
    others = [folder for folder in CACHE.glob("smollm2-*") if folder.is_dir() and folder != newest]
    others.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
    for folder in others[KEEP_LIBRARIES - 1 :]:
        shutil.rmtree(folder, ignore_errors=True)
