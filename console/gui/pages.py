"""The pages of the window, in the order of the list: whoever makes one adds it here."""

from __future__ import annotations

from console.gui.answers.page import AnswersPage
from console.gui.audit.page import AuditPage
from console.gui.devices.page import DevicesPage
from console.gui.invites.page import InvitesPage
from console.gui.models.page import ModelsPage
from console.gui.overview.page import OverviewPage
from console.gui.page import Page
from console.gui.people.page import PeoplePage
from console.gui.plans.page import PlansPage
from console.gui.plans.topology_page import TopologyPage
from console.gui.settings.page import SettingsPage

PAGES: tuple[type[Page], ...] = (
    OverviewPage,
    DevicesPage,
    ModelsPage,
    AnswersPage,
    PlansPage,
    TopologyPage,
    InvitesPage,
    PeoplePage,
    AuditPage,
    SettingsPage,
)
"""Each is made with the desk alone, and only for somebody who has its `scope`."""
