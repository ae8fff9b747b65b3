"""Which files of Qt and OpenVINO a bundle does without. Pure, and alone: PyInstaller's own process loads this file."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping

# Whole parts of Qt and OpenVINO that PyInstaller would take because they are there. Paths inside the bundle.
_DROPPED = (
    # Only layer libraries are read, which are OpenVINO's own format.
    "*libopenvino_*_frontend.so*", "*openvino_*_frontend.dll", "*libopenvino_*_frontend*.dylib",
    # A stage names its device; nothing chooses or batches for it.
    "*openvino_auto*plugin*", "*openvino_hetero_plugin*", "*openvino_c.*", "*tbbmalloc_proxy*",
    "*openvino/frontend/*/*", "*openvino/include/*", "*openvino/cmake/*", "*openvino/tools/*",
    # The driver's own loader has to be used: it knows the drivers of the PC it is on.
    "*libOpenCL.so*", "*OpenCL.dll",
    # What the desktop's own parts share a process with: drivers of graphics cards need the system's C++ library, its
    # X11 and its Wayland; fonts are set up for the system's libraries.
    "/libstdc++.so*", "/libgcc_s.so*", "/libX11*.so*", "/libfontconfig.so*", "/libfreetype.so*", "/libexpat.so*",
    "/libz.so*", "/libglib-2.0.so*", "/libgthread-2.0.so*", "/libdbus-1.so*", "/libwayland-*.so*",
    # What the system keeps safe with updates of its own.
    "/libssl.so*", "/libcrypto.so*",
    # These windows use no QML, SQL, printing, 3D or TLS of Qt.
    "*Qt6Qml*", "*Qt6Quick*", "*Qt6OpenGL*", "*Qt6Sql*", "*Qt6Pdf*", "*Qt6VirtualKeyboard*", "*Qt6PrintSupport*",
    "*Qt6Designer*", "*Qt6Test*", "*Qt6EglFS*", "*Qt6EglFs*", "*opengl32sw.dll", "*Qt6WaylandEglCompositor*",
    "*Qt6WaylandCompositor*",
    "*/PySide6/Qt/qml/*", "*/PySide6/qml/*",
    "*/plugins/designer/*", "*/plugins/egldeviceintegrations/*", "*/plugins/generic/*",
    "*/plugins/networkinformation/*", "*/plugins/printsupport/*", "*/plugins/qmllint/*", "*/plugins/qmltooling/*",
    "*/plugins/sqldrivers/*",
    "*/plugins/tls/*", "*/plugins/vectorimageformats/*", "*/plugins/xcbglintegrations/*",
    "*/plugins/wayland-graphics-integration-server/*", "*/plugins/wayland-graphics-integration-client/*",
    "*qtvirtualkeyboardplugin*", "*/imageformats/*qpdf*", "*/imageformats/*qtiff*", "*/imageformats/*qicns*",
    "*/imageformats/*qtga*", "*/imageformats/*qwbmp*",
    "*/platforms/*eglfs*", "*/platforms/*linuxfb*", "*/platforms/*qvnc*", "*/platforms/*vkkhr*",
    "*/platforms/*minimal*", "*/wayland-shell-integration/*ivi*", "*/wayland-shell-integration/*fullscreen*",
    "*/wayland-shell-integration/*wl-shell*", "*/wayland-shell-integration/*qt-shell*",
    "*/numpy/_core/*_tests.*",
    # Where a wheel lay when it was installed, and by whom.
    "*.dist-info/direct_url.json", "*.dist-info/INSTALLER", "*.dist-info/REQUESTED",
    # It loads the desktop's own GTK, whose libraries are not those it was built against.
    "*/platformthemes/*gtk3*",
)  # fmt: skip
# What the patterns above would take with the rest.
_KEPT = ("*openvino_ir_frontend*",)
_LANGUAGES = ("de", "en", "es")


def keeps(path: str) -> bool:
    """Whether a file belongs into a bundle; `path` is its place in there, with forward slashes."""
    whole = f"/{path}"
    if any(fnmatch.fnmatchcase(whole, pattern) for pattern in _KEPT):
        return True
    if "/translations/" in whole and "/PySide6/" in whole:
        return any(whole.endswith(f"/qtbase_{language}.qm") for language in _LANGUAGES)
    return not any(fnmatch.fnmatchcase(whole, pattern) for pattern in _DROPPED)


def orphans(needs: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the libraries of the system and of Qt that nothing in a bundle links to, once other files were left out.

    `needs` are the binaries by their places, and the names of the libraries that each links to.
    """
    # Modules lie at the top, too, but are imported; Python itself is loaded by the program.
    libraries = {
        place.rpartition("/")[2]: place
        for place in needs
        if (place.startswith("lib") and "/" not in place and "libpython" not in place) or "/Qt/lib/" in place
    }
    seen: set[str] = set()
    left = sorted(set(needs) - set(libraries.values()))
    while left:
        place = left.pop()
        if place not in seen:
            seen.add(place)
            left += [libraries[name] for name in needs[place] if name in libraries]
    return set(libraries.values()) - seen


def openvino_files(names: Iterable[str]) -> list[str]:
    """Choose, of the files in OpenVINO's folder of libraries, what a stage loads by name and nothing links to.

    Not `cache.json`: it holds measured choices for layers with plain 16- or 32-bit weights; those of stages are packed.
    """
    plugins = ("intel_cpu_plugin", "intel_gpu_plugin", "intel_npu_plugin", "intel_npu_compiler", "ir_frontend")
    return sorted(
        name
        for name in names
        if any(plugin in name for plugin in plugins) or name.startswith(("libhwloc", "libtbbbind"))
    )
