"""An OpenVINO runtime with a GPU and an NPU that are really the CPU, but as particular as the real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import openvino as ov

CPU_ONLY = {"INFERENCE_NUM_THREADS", "ENABLE_CPU_PINNING"}


class PretendCore:
    """Stands in for `openvino.Core`: refuses what the named plugin is known to refuse, else computes on the CPU."""

    compiled: ClassVar[list[str]] = []
    refuses: ClassVar[dict[str, str]] = {}
    """Device to what its next compilations say, for drivers that fail."""

    def __init__(self) -> None:
        self._core = _REAL()

    @property
    def available_devices(self) -> list[str]:
        return ["CPU", "GPU", "NPU"]

    def read_model(self, path: Path) -> ov.Model:
        return self._core.read_model(path)

    def get_property(self, device: str, name: str) -> Any:
        return self._core.get_property("CPU", name)

    def compile_model(self, model: ov.Model, device: str, options: dict[str, Any]) -> Any:
        self.compiled.append(device)
        if device in self.refuses:
            raise RuntimeError(self.refuses[device])
        if device != "CPU" and CPU_ONLY.intersection(options):
            raise RuntimeError(f"{device} does not know {sorted(CPU_ONLY.intersection(options))}")
        if device == "NPU":
            _check_static(model, options)
        return self._core.compile_model(model, "CPU", {**options, "INFERENCE_NUM_THREADS": 1})


def _check_static(model: ov.Model, options: dict[str, Any]) -> None:
    ports = [*model.inputs, *model.outputs]
    if not all(port.get_partial_shape().is_static for port in ports):
        raise RuntimeError("An NPU compiles no dynamic shapes.")
    if model.get_sinks() or {"KV_CACHE_PRECISION", "DYNAMIC_QUANTIZATION_GROUP_SIZE"}.intersection(options):
        raise RuntimeError("An NPU keeps no state.")


_REAL = ov.Core
