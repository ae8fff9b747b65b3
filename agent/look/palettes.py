"""The look of the windows: light, dark and high contrast.

The palettes are our own, on Qt's Fusion style: so what is tested looks the same on every system. Fusion draws outlines
a little darker than the window, which nobody sees on black; ours are drawn over them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from PySide6.QtCore import QObject, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPalette, QPen
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFrame,
    QLineEdit,
    QProxyStyle,
    QStyle,
    QStyleOption,
    QStyleOptionComplex,
    QWidget,
)

Scheme = Literal["light", "dark", "contrast"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark", "contrast")


class Colours(NamedTuple):
    """One scheme. `good`, `bad` and `quiet` are for text and drawings on `window`: at least 4.5:1; `outline` 3:1."""

    window: str
    base: str
    alternate: str
    text: str
    quiet: str
    button: str
    border: str
    outline: str
    accent: str
    on_accent: str
    good: str
    bad: str
    disabled: str


COLOURS: dict[Scheme, Colours] = {
    "light": Colours(
        window="#f4f5f2", base="#ffffff", alternate="#edefe9", text="#1b1f1a", quiet="#566053", button="#e7eae2",
        border="#b9c0b3", outline="#7d8776", accent="#2f6b3c", on_accent="#ffffff", good="#2f6b3c", bad="#a3361d",
        disabled="#8a9186",
    ),
    "dark": Colours(
        window="#1d211c", base="#141713", alternate="#232822", text="#e9ece6", quiet="#a6b0a1", button="#2c322a",
        border="#4b5547", outline="#7d8a78", accent="#8cc97f", on_accent="#10140f", good="#8cc97f", bad="#ff9a7d",
        disabled="#737c6f",
    ),
    "contrast": Colours(
        window="#000000", base="#000000", alternate="#000000", text="#ffffff", quiet="#ffffff", button="#000000",
        border="#909090", outline="#ffffff", accent="#ffff00", on_accent="#000000", good="#00ff66", bad="#ff8080",
        disabled="#b0b0b0",
    ),
}  # fmt: skip


def palette(scheme: Scheme) -> QPalette:
    """Return the whole palette of one scheme."""
    colours = COLOURS[scheme]
    roles = {
        QPalette.ColorRole.Window: colours.window,
        QPalette.ColorRole.WindowText: colours.text,
        QPalette.ColorRole.Base: colours.base,
        QPalette.ColorRole.AlternateBase: colours.alternate,
        QPalette.ColorRole.Text: colours.text,
        QPalette.ColorRole.PlaceholderText: colours.quiet,
        QPalette.ColorRole.Button: colours.button,
        QPalette.ColorRole.ButtonText: colours.text,
        QPalette.ColorRole.BrightText: colours.bad,
        QPalette.ColorRole.ToolTipBase: colours.base,
        QPalette.ColorRole.ToolTipText: colours.text,
        QPalette.ColorRole.Highlight: colours.accent,
        QPalette.ColorRole.HighlightedText: colours.on_accent,
        QPalette.ColorRole.Accent: colours.accent,
        QPalette.ColorRole.Link: colours.accent,
        QPalette.ColorRole.LinkVisited: colours.accent,
        QPalette.ColorRole.Light: colours.base,
        QPalette.ColorRole.Midlight: colours.alternate,
        QPalette.ColorRole.Mid: colours.border,
        QPalette.ColorRole.Dark: colours.border,
        QPalette.ColorRole.Shadow: colours.border,
    }
    made = QPalette()
    for role, colour in roles.items():
        made.setColor(role, QColor(colour))
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        made.setColor(QPalette.ColorGroup.Disabled, role, QColor(colours.disabled))
    return made


def system_scheme(app: QApplication) -> Scheme:
    """Say what the desktop asks for; light where it does not say."""
    hints = app.styleHints()
    if hints.accessibility().contrastPreference() == Qt.ContrastPreference.HighContrast:
        return "contrast"
    return "dark" if hints.colorScheme() == Qt.ColorScheme.Dark else "light"


def scheme_of(shown: QPalette) -> Scheme:
    """Say which of our schemes a widget is shown in."""
    window = shown.color(QPalette.ColorRole.Window).name()
    return next((scheme for scheme in SCHEMES if COLOURS[scheme].window == window), "light")


class OutlinedStyle(QProxyStyle):
    """Fusion, with outlines that can be seen around what can be pressed or filled in."""

    _PRIMITIVES = frozenset(
        {
            QStyle.PrimitiveElement.PE_IndicatorCheckBox,
            QStyle.PrimitiveElement.PE_PanelLineEdit,
            QStyle.PrimitiveElement.PE_PanelButtonCommand,
            QStyle.PrimitiveElement.PE_PanelButtonTool,
            QStyle.PrimitiveElement.PE_Frame,
        }
    )
    _COMPLEX = frozenset({QStyle.ComplexControl.CC_SpinBox, QStyle.ComplexControl.CC_ComboBox})

    def __init__(self) -> None:
        super().__init__("Fusion")

    def drawPrimitive(  # noqa: N802 - Qt's name
        self,
        element: QStyle.PrimitiveElement,
        option: QStyleOption,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Draw as Fusion does, then the outline."""
        super().drawPrimitive(element, option, painter, widget)
        # The line inside a spin box or combo box has the box's own outline.
        inner = isinstance(widget, QLineEdit) and isinstance(widget.parent(), QAbstractSpinBox | QComboBox)
        if element in self._PRIMITIVES and not inner and not _is_frameless(widget):
            _outline(option, painter)

    def drawComplexControl(  # noqa: N802 - Qt's name
        self,
        control: QStyle.ComplexControl,
        option: QStyleOptionComplex,
        painter: QPainter,
        widget: QWidget | None = None,
    ) -> None:
        """Draw as Fusion does, then the outline."""
        super().drawComplexControl(control, option, painter, widget)
        if control in self._COMPLEX:
            _outline(option, painter)


def _is_frameless(widget: QWidget | None) -> bool:
    return isinstance(widget, QFrame) and widget.frameShape() == QFrame.Shape.NoFrame


def _outline(option: QStyleOption, painter: QPainter) -> None:
    state: QStyle.StateFlag = option.state
    shown: QPalette = option.palette
    colours = COLOURS[scheme_of(shown)]
    enabled, focused = (
        bool(state & flag) for flag in (QStyle.StateFlag.State_Enabled, QStyle.StateFlag.State_HasFocus)
    )
    colour = colours.border if not enabled else colours.accent if focused else colours.outline
    painter.save()
    painter.setPen(QPen(QColor(colour), 2 if focused else 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    edge = 1.0 if focused else 0.5
    rect = QRectF(option.rect).adjusted(edge, edge, -edge, -edge)
    painter.drawRoundedRect(rect, 2, 2)
    painter.restore()


def apply(app: QApplication, scheme: Scheme) -> None:
    """Show every window in one scheme."""
    if not isinstance(app.style(), OutlinedStyle):
        app.setStyle(OutlinedStyle())
    app.setPalette(palette(scheme))


def choose(app: QApplication, wanted: Scheme | Literal["system"]) -> None:
    """Show the windows in one scheme, or in the desktop's (`system`), also when that changes; the last wish counts."""
    chooser = app.findChild(_Chooser) or _Chooser(app)
    chooser.wanted = wanted
    apply(app, system_scheme(app) if wanted == "system" else wanted)


class _Chooser(QObject):
    """What was chosen for an application, which owns it; hears of the desktop's changes."""

    def __init__(self, app: QApplication) -> None:
        super().__init__(app)
        self.wanted: Scheme | Literal["system"] = "system"
        self._app = app
        hints = app.styleHints()
        hints.colorSchemeChanged.connect(self._follow)
        hints.accessibility().contrastPreferenceChanged.connect(self._follow)

    def _follow(self) -> None:
        if self.wanted == "system":
            apply(self._app, system_scheme(self._app))
