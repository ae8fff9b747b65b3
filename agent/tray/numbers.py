"""How the windows write numbers."""

from __future__ import annotations

from PySide6.QtCore import QLocale

from agent.tray.texts import Texts


class Numbers:
    """Numbers as the owner's language writes them."""

    def __init__(self, texts: Texts) -> None:
        self._locale = QLocale(texts.language)
        self._texts = texts

    def whole(self, number: float) -> str:
        """`12,345`."""
        return self._locale.toString(round(number))

    def decimal(self, number: float, places: int = 1) -> str:
        """`3.1`."""
        return self._locale.toString(float(number), "f", places)

    def hours(self, hours: float) -> str:
        """`3.1 h`."""
        return self._texts("unit.hours", number=self.decimal(hours))

    def tokens(self, tokens: float) -> str:
        """`12,345 tokens`."""
        return self._texts("unit.tokens", n=round(tokens), number=self.whole(tokens))

    def energy(self, watt_hours: float) -> str:
        """`450 Wh`, or `1.2 kWh` from a thousand on."""
        if watt_hours >= 1000:
            return self._texts("unit.kilowatt_hours", number=self.decimal(watt_hours / 1000))
        return self._texts("unit.watt_hours", number=self.whole(watt_hours))

    def memory(self, size_bytes: float) -> str:
        """`7.5 GiB`."""
        return self._texts("unit.gibibytes", number=self.decimal(size_bytes / 2**30))
