"""Faults that exporters are known to have had, each as a model that would show it; `README.md` has the whole list."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
import pytest
import torch

from shard_export.build.job import build_library
from shard_export.build.options import BuildOptions
from shard_export.library import errors
from shard_export.library.store import verify_library
from tests.support.checkpoints import edit_config, edit_weights, make_checkpoint

if TYPE_CHECKING:
    from pathlib import Path

PLAIN = BuildOptions(layers="int8_asym", ends="int8_asym")


def rotary(folder: Path, positions: list[int]) -> np.ndarray[Any, Any]:
    """Run a library's rotary unit: the cosines [n,R]."""
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    unit = ov.Core().compile_model(str(folder / "units" / "rope-full.xml"), "CPU", exact)
    return np.array(unit([np.array([positions])])[0][0])


@pytest.mark.parametrize("place", ["of its own", "in rope_parameters"])
def test_the_rotary_base_is_used_wherever_the_config_keeps_it(place: str, tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model")
    if place == "of its own":
        edit_config(source, rope_parameters=None, rope_theta=77000.0)
    else:
        edit_config(source, rope_parameters={"rope_type": "default", "rope_theta": 77000.0})
    build_library(source, tmp_path / "out", PLAIN)
    frequencies = 77000.0 ** -(np.arange(0, 16, 2) / 16)
    wanted = np.cos(np.outer([0, 1, 200], np.concatenate([frequencies, frequencies])))
    assert np.allclose(rotary(tmp_path / "out", [0, 1, 200]), wanted, atol=1e-5)


def test_config_fields_that_are_there_but_null_are_as_good_as_absent(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model")
    edit_config(source, head_dim=None, rope_scaling=None, sliding_window=None)
    manifest = build_library(source, tmp_path / "out", PLAIN)
    attention = manifest.layer(0).attention
    assert attention is not None
    assert (attention.k_head_size, attention.window_tokens) == (16, 0)


def test_a_mixture_of_experts_under_a_dense_config_is_refused_and_not_exported_without_its_experts(
    tmp_path: Path,
) -> None:
    source = make_checkpoint(tmp_path / "model")
    edit_weights(source, model__layers__0__mlp__experts__0__up_proj__weight=torch.zeros(96, 64))
    with pytest.raises(errors.TensorMismatch, match="experts"):
        build_library(source, tmp_path / "out", PLAIN)


def test_nothing_of_a_replaced_library_stays_behind(tmp_path: Path) -> None:
    deep = make_checkpoint(tmp_path / "deep", num_hidden_layers=3)
    build_library(deep, tmp_path / "out", PLAIN)
    flat = make_checkpoint(tmp_path / "flat", num_hidden_layers=1)
    build_library(flat, tmp_path / "out", BuildOptions(layers="int8_asym", ends="int8_asym", replace=True))
    assert verify_library(tmp_path / "out").layer_count == 1
    assert not (tmp_path / "out" / "units" / "001.bin").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deep", "flat", "out"]


def test_every_unit_has_the_types_names_and_fixed_sizes_the_format_promises(tmp_path: Path) -> None:
    build_library(make_checkpoint(tmp_path / "model"), tmp_path / "out", BuildOptions(layers="int4_asym"))
    for index in range(2):
        unit = ov.Core().read_model(str(tmp_path / "out" / "units" / f"{index:03d}.xml"))
        ports = {port.any_name: port for port in [*unit.inputs, *unit.outputs]}
        assert set(ports) == {"hidden", "mask", "cos", "sin", "past_k", "past_v", "out", "present_k", "present_v"}
        for name, port in ports.items():
            assert port.get_names() == {name}
            assert port.get_element_type() == ov.Type.f32
        # Unpacking four bits may not make the width dynamic again: the next stage's shapes hang on it.
        assert [ports[name].get_partial_shape()[2].get_length() for name in ("hidden", "out")] == [64, 64]
        assert ports["present_k"].get_partial_shape()[1].get_length() == 2


def test_keys_and_values_of_a_layer_are_its_own(tmp_path: Path) -> None:
    manifest = build_library(make_checkpoint(tmp_path / "model"), tmp_path / "out", PLAIN)
    hashes = [manifest.layer(index).bin.sha256 for index in range(2)]
    assert len(set(hashes)) == 2
    # The half-open range of one layer brings that layer and no other.
    assert [unit.name for unit in manifest.units_of_range(1, 2) if unit.kind == "layer"] == ["layer-001"]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_build_keeps_no_file_open_and_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    source = make_checkpoint(tmp_path / "model", shard_bytes=60_000)
    build_library(source, tmp_path / "out", PLAIN)
    gc.collect()
    with open("/proc/self/maps") as maps:  # noqa: PTH123 - a file of the kernel
        assert str(tmp_path) not in maps.read()
    opened = [os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]  # noqa: PTH208
    assert not [path for path in opened if str(tmp_path / "model") in path or str(tmp_path / "out") in path]
    assert list(temporary.iterdir()) == []


def test_a_build_in_a_process_of_its_own_gives_the_same_library(tmp_path: Path) -> None:
    source = make_checkpoint(tmp_path / "model")
    build_library(source, tmp_path / "one")
    command = [sys.executable, "-m", "shard_export", "build", str(source), str(tmp_path / "two"), "--json-events"]
    seed = str(hash("seed") % 1000 + 1)  # other than what this process got: it has a random one
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    one, two = ((tmp_path / name / "manifest.json").read_bytes() for name in ("one", "two"))
    assert one == two
    unit = "units/000.bin"
    assert (tmp_path / "one" / unit).samefile(tmp_path / "two" / unit)
