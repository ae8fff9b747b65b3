"""Writing a unit so that the same unit always has the same bytes, and reading it back to see what was written."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import openvino as ov

from shard_export.build.stored import NAMED, read_compression
from shard_export.library.errors import ExportError
from shard_export.library.manifest import Unit
from shard_export.library.store import disk_full, record_of

if TYPE_CHECKING:
    from pathlib import Path

_LOW_BYTES = 1 << 20


def write_unit(model: ov.Model, library: Path, stem: str, *, compressed: bool) -> tuple[ov.Model, Unit]:
    """Write `units/STEM.xml` and `.bin` and return the model as read back, with a Unit that still lacks its name.

    Raises DiskFull, ExportError when what is on the disk is not readable.
    """
    settle_names(model, stem)
    path = library / "units" / f"{stem}.xml"
    try:
        # float32 leftovers (norms, biases) stay float32: they are few, and small epsilons do not survive float16.
        ov.save_model(model, str(path), compress_to_fp16=False)
        stored = _read(path)
    except RuntimeError as error:
        # OpenVINO does not say that the disk is full, so look.
        if shutil.disk_usage(path.parent).free < _LOW_BYTES:
            raise disk_full(library.parent) from error
        raise ExportError(f"The unit {stem} could not be written to {path.parent}; check the disk.") from error
    records = [record_of(library, f"units/{stem}{suffix}") for suffix in (".xml", ".bin")]
    compression = read_compression(stored, none=not compressed)
    return stored, Unit(stem, "layer", -1, records[0], records[1], compression)


def settle_names(model: ov.Model, stem: str) -> None:
    """Replace names that depend on what was traced before by names that depend on the graph alone."""
    model.set_friendly_name(stem)
    for index, node in enumerate(model.get_ordered_ops()):
        name = str(node.get_friendly_name())
        if node.get_type_name() != "Parameter" and not name.endswith(NAMED):
            node.set_friendly_name(f"{node.get_type_name()}_{index}")


def _read(path: Path) -> Any:
    # Mapped weights would keep the file open, and Windows renames no folder with open files.
    return ov.Core().read_model(str(path), config={"ENABLE_MMAP": False})
