"""The facts every support bundle has: versions, and the PC. Blocking."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from agent.support.bundle import Part, last_of

PACKAGES = (
    "fallow", "openvino", "numpy", "msgspec", "websockets", "cryptography", "keyring", "psutil", "llguidance",
    "starlette", "uvicorn", "httpx2", "SQLAlchemy", "psycopg", "tokenizers", "prometheus-client", "PySide6-Essentials",
)  # fmt: skip
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")


def versions() -> dict[str, Any]:
    """Return the versions of what runs here; packages that are not installed are left out."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"packages": found, "python": sys.version, "frozen": bool(getattr(sys, "frozen", False))}


def this_pc(folder: Path) -> dict[str, Any]:
    """Return what a PC is and how busy; not its name, nor its user's."""
    memory, swap, disk = psutil.virtual_memory(), psutil.swap_memory(), shutil.disk_usage(folder)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "version": platform.version(),
        "machine": platform.machine(),
        "processor": platform.processor(),
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(),
        "load": psutil.getloadavg(),
        "memory_bytes": memory.total,
        "memory_available_bytes": memory.available,
        "swap_used_bytes": swap.used,
        "data_folder_disk_bytes": disk.total,
        "data_folder_disk_free_bytes": disk.free,
        "up_s": round(time.time() - psutil.boot_time()),
        "time_zone": time.strftime("%z"),
        "proxies_set": [name for name in PROXIES if os.environ.get(name) or os.environ.get(name.lower())],
    }


def common_parts(folder: Path) -> list[Part]:
    """List the parts of every bundle."""
    return [
        Part("versions.json", "which versions of Fallow and its packages run", versions),
        Part("pc.json", "system, processor, memory, disk and load of this PC", lambda: this_pc(folder)),
    ]


def log_parts(files: list[Path]) -> list[Part]:
    """List a log and the full ones beside it as parts."""
    purpose = "what the program logged; without what people asked"
    return [Part(f"logs/{file.name}", purpose, partial(last_of, file)) for file in reversed(files)]
