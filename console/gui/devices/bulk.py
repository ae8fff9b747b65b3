"""What can be done to the PCs that are selected: buttons above the table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from agent.look.widgets import label
from console import calls
from console.api.admin import types as wire
from console.call import Call
from console.gui.asking import Orders, Question
from console.gui.page import Desk
from shard_export.library.counts import counted

GONE = ("evicted", "banned", "retired")


class BulkBar(QWidget):
    """Buttons that are enabled where they mean something for at least one of the selected PCs. GUI thread."""

    said = Signal(str, bool)

    def __init__(self, desk: Desk) -> None:
        super().__init__()
        self._desk = desk
        self._chosen: list[wire.Agent] = []
        self._orders = Orders(desk.bridge, self)
        self._orders.said.connect(self.said)
        self.text = label(quiet=True)
        across = QHBoxLayout(self)
        across.setContentsMargins(0, 0, 0, 0)
        across.addWidget(self.text, 1)
        self.buttons: dict[str, QPushButton] = {}
        for name, text, do in (
            ("approve", "&Approve…", self._approve),
            ("deny", "&Deny…", self._deny),
            ("suspend", "&Suspend…", self._suspend),
            ("resume", "&Resume", self._resume),
            ("tags", "&Tags…", self._tags),
            ("revoke", "Re&move…", self._revoke),
        ):
            button = QPushButton(text)
            button.clicked.connect(do)
            across.addWidget(button)
            self.buttons[name] = button
        self.choose([])

    def choose(self, agents: Sequence[wire.Agent]) -> None:
        """Work on other PCs."""
        self._chosen = list(agents)
        self.text.setText(
            f"{counted(len(agents), 'PC')} selected" if agents else "Select PCs to do something with them."
        )
        for name, button in self.buttons.items():
            button.setEnabled(bool(self._able(name)) and self._desk.may("operate"))
            button.setToolTip("" if self._desk.may("operate") else "Who is signed in may only look.")

    def _able(self, name: str) -> list[wire.Agent]:
        fits: dict[str, Callable[[wire.Agent], bool]] = {
            "approve": lambda agent: agent.state == "pending",
            "deny": lambda agent: agent.state == "pending",
            "suspend": lambda agent: agent.state == "active",
            "resume": lambda agent: agent.state == "suspended",
            "revoke": lambda agent: agent.state not in GONE,
            "tags": lambda agent: agent.state not in GONE,
        }
        return [agent for agent in self._chosen if fits[name](agent)]

    def _approve(self) -> None:
        agents = self._able("approve")
        question = Question(
            self,
            f"Approve {counted(len(agents), 'PC')}?",
            "Compare each code with the one on the screen of the PC. Who is let in may run models of this fleet.",
            "Approve",
            # The name is what the PC says of itself: behind what the console knows.
            lines=[f"{agent.device_code}   {agent.device_id}   {agent.name}" for agent in agents],
        )
        question.answered.connect(lambda *_: self._order(agents, calls.approve, "approved"))
        question.open()

    def _deny(self) -> None:
        agents = self._able("deny")
        self._ask_reason(agents, "Deny", "Each may ask again with another invite.", calls.deny, "denied")

    def _suspend(self) -> None:
        agents = self._able("suspend")
        text = "Each leaves what it serves and does nothing until it is resumed."
        self._ask_reason(agents, "Suspend", text, calls.suspend, "suspended")

    def _resume(self) -> None:
        self._order(self._able("resume"), calls.resume, "resumed")

    def _revoke(self) -> None:
        agents = self._able("revoke")
        question = Question(
            self,
            f"Remove {counted(len(agents), 'PC')} from the fleet?",
            "Each loses its certificate and leaves at once. To come back it needs a new invite.",
            "Remove",
            lines=[agent.name for agent in agents],
            field="Reason, which the user of the PC reads",
            tick="Ban: never let it in again with any key it had",
        )
        question.answered.connect(
            lambda reason, ban: self._order(
                agents, lambda device: calls.revoke(device, ban=ban, reason=reason), "banned" if ban else "removed"
            )
        )
        question.open()

    def _tags(self) -> None:
        agents = self._able("tags")
        shared = set(agents[0].tags).intersection(*(agent.tags for agent in agents)) if agents else set()
        question = Question(
            self,
            f"Tags of {counted(len(agents), 'PC')}",
            "Words, with commas between. What all have now is filled in; tags that only some have stay theirs. "
            "`site:` and `network:` say where a PC stands.",
            "Set tags",
            lines=[f"{agent.name}   {', '.join(agent.tags)}" for agent in agents],
            field="Tags that all have",
            filled=", ".join(sorted(shared)),
        )
        question.answered.connect(lambda text, _: self._set_tags(agents, shared, text))
        question.open()

    def _set_tags(self, agents: Sequence[wire.Agent], former: set[str], text: str) -> None:
        wanted = {word.strip() for word in text.split(",") if word.strip()}
        orders: list[tuple[str, Call[None]]] = [
            (agent.name, calls.set_tags(agent.device_id, sorted(set(agent.tags) - former | wanted))) for agent in agents
        ]
        self._orders.carry_out(orders, f"The tags of {counted(len(agents), 'PC')} are set.", self._desk.agents.now)

    def _ask_reason(
        self, agents: Sequence[wire.Agent], verb: str, text: str, call: Callable[..., Call[None]], done: str
    ) -> None:
        question = Question(
            self,
            f"{verb} {counted(len(agents), 'PC')}?",
            text,
            verb,
            lines=[f"{agent.device_code}   {agent.name}" for agent in agents],
            field="Reason, which the user of the PC reads",
        )
        question.answered.connect(
            lambda reason, _: self._order(agents, lambda device: call(device, reason=reason), done)
        )
        question.open()

    def _order(self, agents: Sequence[wire.Agent], call: Callable[[str], Call[None]], done: str) -> None:
        orders = [(agent.name, call(agent.device_id)) for agent in agents]
        one = agents[0].name if len(agents) == 1 else counted(len(agents), "PC")
        verb = "is" if len(agents) == 1 else "are"
        self._orders.carry_out(orders, f"{one} {verb} {done}.", self._desk.agents.now)
