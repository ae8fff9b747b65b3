"""PCs and pipelines as the admin routes describe them, without a service: for windows."""

from __future__ import annotations

import time
from typing import Any

from console.api.admin import types as wire
from console.fleet.direct import StageLink
from console.pipeline.types import StageStatus

GIB = 1 << 30


def device_id(number: int) -> str:
    return f"{number:032x}"


def make_agent(number: int, **fields: Any) -> wire.Agent:
    values: dict[str, Any] = {
        "device_id": device_id(number), "name": f"pc-{number:04d}", "state": "active", "reason": "",
        "device_code": f"K7QF-{number:04d}", "link": "connected", "seen_s": time.time() - 3, "os": "Windows 11",
        "version": "0.1.0", "memory_bytes": 16 * GIB, "memory_free_bytes": 9 * GIB,
        "devices": ["CPU", "GPU"], "volunteering": "available", "key_protection": "keyring", "tags": ["site:oslo"],
        "rests_percent": 80,
    }  # fmt: skip
    return wire.Agent(**(values | fields))


def make_fleet(total: int) -> list[wire.Agent]:
    """A mixed fleet: most are available, some wait, are held, offline, suspended or gone."""
    kinds: list[dict[str, Any]] = [
        {}, {}, {}, {"held_because": ["user_input"], "volunteering": "held"},
        {"link": "offline", "memory_free_bytes": 0, "seen_s": time.time() - 7200},
        {"state": "pending", "link": "offline", "memory_free_bytes": 0, "tags": []},
        {"state": "suspended", "reason": "It overheats.", "link": "offline"},
        {"state": "evicted", "reason": "It was sold.", "link": "offline"},
    ]  # fmt: skip
    return [make_agent(number, **kinds[number % len(kinds)]) for number in range(total)]


def make_pipeline(model: str = "qwen3-4b", devices: int = 3, layers: int = 36, **fields: Any) -> wire.PipelineView:
    """A pipeline over the first PCs of `make_fleet`."""
    bounds = [layers * part // devices for part in range(devices + 1)]
    stages = [
        StageStatus(device_id(part), f"pc-{part:04d}", bounds[part], bounds[part + 1], "paged", True, 1.2, 12.5)
        for part in range(devices)
    ]
    values: dict[str, Any] = {
        "model": model, "state": "ready", "message": "", "epoch": 4, "request": wire.DeployRequest(model=model),
        "probe": wire.Probe(ok=True, age_s=3.0, ms=240.0, message=""), "stages": stages,
        "links": [StageLink(part, "console" if part == 0 else "relay", "", 1.8 + part) for part in range(devices)],
        "tokens_per_second": 11.3, "running": 2, "queued": 1,
    }  # fmt: skip
    return wire.PipelineView(**(values | fields))


def make_status(pipelines: list[wire.PipelineView] | None = None, **fields: Any) -> wire.Status:
    values: dict[str, Any] = {
        "version": "0.1.0", "started_s": time.time() - 86_400, "api_url": "https://console.example.org:8460",
        "agents_urls": ["wss://console.example.org:8461"], "agents_connected": 5, "agents_known": 8,
        "pipelines": [make_pipeline()] if pipelines is None else pipelines,
    }  # fmt: skip
    return wire.Status(**(values | fields))
