"""The page of the settings: policy, service, authority."""

from __future__ import annotations

from PySide6.QtWidgets import QTabWidget

from console import calls
from console.gui.feed import Feed
from console.gui.page import Desk, Page
from console.gui.settings.policy_tab import PolicyTab
from console.gui.settings.service_tab import ServiceTab

SETTINGS_EVERY_S = 10.0


class SettingsPage(Page):
    """What is set once and looked at now and then."""

    name = "settings"
    heading = "Settings"
    icon = "settings"

    def __init__(self, desk: Desk) -> None:
        self.policy = Feed(desk.bridge, calls.policy(), SETTINGS_EVERY_S)
        self.authority = Feed(desk.bridge, calls.authority(), SETTINGS_EVERY_S)
        super().__init__(desk, self.policy, self.authority, desk.status)
        self.policy_tab = PolicyTab(desk, self.policy)
        self.service_tab = ServiceTab(desk, self.authority)
        self.tabs = QTabWidget()
        self.tabs.setDocumentMode(True)  # without Fusion's frame, whose ground is another than the window's
        self.tabs.addTab(self.policy_tab, "&Volunteering")
        self.tabs.addTab(self.service_tab, "Service and a&uthority")
        for tab in (self.policy_tab, self.service_tab):
            tab.said.connect(self.said)
        self.rows.addWidget(self.tabs, 1)
