"""What is left out of Qt and OpenVINO, by the names their wheels have on each system."""

from __future__ import annotations

import pytest

from installer.packaging.trimming import keeps, openvino_files, orphans

QT = "_internal/PySide6/Qt"


@pytest.mark.parametrize(
    "place",
    [
        f"{QT}/lib/libQt6Widgets.so.6",
        f"{QT}/lib/libQt6Svg.so.6",
        f"{QT}/plugins/platforms/libqxcb.so",
        f"{QT}/plugins/platforms/libqwayland.so",
        f"{QT}/plugins/platforms/libqoffscreen.so",
        f"{QT}/plugins/imageformats/libqsvg.so",
        f"{QT}/plugins/platforminputcontexts/libibusplatforminputcontextplugin.so",
        f"{QT}/translations/qtbase_de.qm",
        "_internal/PySide6/plugins/platforms/qwindows.dll",
        "_internal/PySide6/Qt/plugins/platforms/libqcocoa.dylib",
        "_internal/openvino/libs/libopenvino_intel_cpu_plugin.so",
        "_internal/openvino/libs/libopenvino_ir_frontend.so.2641",
        "_internal/openvino/libs/openvino_ir_frontend.dll",
        "_internal/openvino/libs/libopenvino.so.2641",
        "_internal/openvino/libs/libtbb.so.12",
        "_internal/assets/translations/de.json",
    ],
)
def test_what_windows_and_stages_need_stays(place: str) -> None:
    assert keeps(place)


@pytest.mark.parametrize(
    "place",
    [
        f"{QT}/lib/libQt6Quick.so.6",
        f"{QT}/lib/libQt6Qml.so.6",
        f"{QT}/lib/libQt6OpenGL.so.6",
        f"{QT}/plugins/platforms/libqeglfs.so",
        f"{QT}/plugins/platformthemes/libqgtk3.so",
        f"{QT}/plugins/tls/libqopensslbackend.so",
        f"{QT}/plugins/sqldrivers/libqsqlite.so",
        f"{QT}/translations/qtbase_fr.qm",
        f"{QT}/translations/designer_de.qm",
        "_internal/PySide6/opengl32sw.dll",
        "_internal/PySide6/plugins/sqldrivers/qsqlite.dll",
        "_internal/openvino/libs/libopenvino_onnx_frontend.so.2641",
        "_internal/openvino/libs/libopenvino_tensorflow_frontend.so.2641",
        "_internal/openvino/libs/libopenvino_pytorch_frontend.so.2641",
        "_internal/openvino/libs/libopenvino_gguf_frontend.so.2641",
        "_internal/openvino/libs/openvino_paddle_frontend.dll",
        "_internal/openvino/libs/libopenvino_auto_plugin.so",
        "_internal/libOpenCL.so.1",
    ],
)
def test_what_nothing_of_ours_loads_goes(place: str) -> None:
    assert not keeps(place)


def test_libraries_that_nothing_links_to_any_more_go_too() -> None:
    needs = {
        "PySide6/QtGui.so": ["libQt6Gui.so", "libxkb.so"],
        "libxkb.so": ["libxml.so"],
        "libxml.so": [],
        "libgtk.so": ["libgdk.so"],
        "libgdk.so": ["libgtk.so"],
        "libpython3.11.so.1.0": [],
        "_cffi_backend.so": [],
        "PySide6/Qt/lib/libQt6Gui.so": [],
        "PySide6/Qt/lib/libQt6Network.so": ["libkrb.so"],
        "libkrb.so": [],
    }
    assert orphans(needs) == {"libgtk.so", "libgdk.so", "libkrb.so", "PySide6/Qt/lib/libQt6Network.so"}


@pytest.mark.parametrize("name", ["libstdc++.so.6", "libX11.so.6", "libz.so.1", "libwayland-client.so.0"])
def test_the_desktops_own_libraries_are_the_systems(name: str) -> None:
    assert not keeps(name)
    assert keeps(f"numpy.libs/{name}")


def test_of_openvino_the_three_devices_and_the_format_of_libraries_are_taken() -> None:
    names = [
        "libopenvino.so.2641",
        "libopenvino_auto_plugin.so",
        "libopenvino_intel_cpu_plugin.so",
        "libopenvino_intel_gpu_plugin.so",
        "libopenvino_intel_npu_plugin.so",
        "libopenvino_ir_frontend.so.2641",
        "libopenvino_onnx_frontend.so.2641",
        "libtbb.so.12",
        "cache.json",
        "tbb.pc",
    ]
    assert openvino_files(names) == [
        "libopenvino_intel_cpu_plugin.so",
        "libopenvino_intel_gpu_plugin.so",
        "libopenvino_intel_npu_plugin.so",
        "libopenvino_ir_frontend.so.2641",
    ]
