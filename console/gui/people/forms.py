"""The dialogs for people and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

from PySide6.QtWidgets import QCheckBox, QComboBox, QDoubleSpinBox, QFormLayout, QLineEdit, QSpinBox, QWidget

from console import calls
from console.api.admin import types as wire
from console.call import Call
from console.errors import ClientError
from console.gui.bridge import Bridge
from console.gui.forms import FormDialog, secret_field, words_of
from console.registry.records import ApiKey, Quota, Role, Scope, User

ROLE_TEXTS: dict[Role, str] = {
    "owner": "owner: everything",
    "operator": "operator: PCs and models",
    "auditor": "auditor: looks at everything, and the audit log",
    "user": "user: chats",
}
SCOPE_TEXTS: dict[Scope, str] = {
    "chat": "chat: use the models",
    "view": "view: see the fleet",
    "operate": "operate: PCs and models",
    "audit": "audit: read the audit log",
    "admin": "admin: everything",
}
LIVES = (("never", None), ("in 7 days", 7.0), ("in 30 days", 30.0), ("in a year", 365.0))
MOST_STREAMS, MOST_TOKENS = 10_000, 1 << 40


class NewUser(FormDialog):
    """Asks for a new person; without a password they only own keys."""

    def __init__(self, parent: QWidget, bridge: Bridge, then: Callable[[User], object]) -> None:
        super().__init__(parent, bridge, "New person", yes="&Add", order=self.call, then=then)
        self.name = QLineEdit()
        self.role = role_box("user")
        self.password, self.again = secret_field(), secret_field()
        self.form.addRow("&Name", self.name)
        self.form.addRow("&Role", self.role)
        self.form.addRow("&Password", self.password)
        self.form.addRow("Password &again", self.again)

    def call(self) -> Call[User]:
        """Return the order. Raises ClientError."""
        if not self.name.text().strip():
            raise ClientError("Type the name.")
        password = _same(self.password, self.again)
        return calls.create_user(self.name.text().strip(), role=self.role.currentData(), password=password or None)


class NewPassword(FormDialog):
    """Asks for another password of somebody, or takes theirs away: that has to be said, an empty field is no order."""

    def __init__(self, parent: QWidget, bridge: Bridge, name: str, then: Callable[[User], object]) -> None:
        about = "Every sign-in of theirs ends."
        super().__init__(parent, bridge, f"Password of {name}", yes="&Set", order=self.call, then=then, about=about)
        self._name = name
        self.password, self.again = secret_field(), secret_field()
        self.none = QCheckBox("&Take the password away: they cannot sign in, only use keys")
        for field in (self.password, self.again):
            self.none.toggled.connect(field.setDisabled)
        self.form.addRow("&Password", self.password)
        self.form.addRow("Password &again", self.again)
        self.form.addRow("", self.none)
        self.came_of_it = ""
        """What the order does to somebody, for the sentence that it is done."""

    def call(self) -> Call[User]:
        """Return the order. Raises ClientError."""
        password = None if self.none.isChecked() else _same(self.password, self.again)
        if password == "":
            raise ClientError("Type the new password twice, or tick that it is taken away.")
        self.came_of_it = "has another password" if password else "has no password any more, and cannot sign in"
        return calls.change_user(self._name, wire.UserChange(password=password))


class ChangeRole(FormDialog):
    """Asks for another role of somebody."""

    def __init__(self, parent: QWidget, bridge: Bridge, user: User, then: Callable[[User], object]) -> None:
        super().__init__(parent, bridge, f"Role of {user.name}", yes="&Set", order=self.call, then=then)
        self._name = user.name
        self.role = role_box(user.role)
        self.form.addRow("&Role", self.role)

    def call(self) -> Call[User]:
        """Return the order."""
        return calls.change_user(self._name, wire.UserChange(role=self.role.currentData()))


class LimitFields:
    """The fields for what a key may use."""

    def __init__(self, form: QFormLayout, quota: Quota) -> None:
        self.streams = QSpinBox()
        self.streams.setRange(0, MOST_STREAMS)
        self.streams.setSpecialValueText("no limit")
        self.streams.setValue(quota.streams or 0)
        self.limited = QCheckBox("a day at &most")
        self.limited.setChecked(quota.tokens_per_day is not None)
        self.tokens = QDoubleSpinBox()  # whole numbers, of which the other box has too few
        self.tokens.setDecimals(0)
        self.tokens.setRange(0, max(MOST_TOKENS, quota.tokens_per_day or 0))
        self.tokens.setSingleStep(1000)
        self.tokens.setSuffix(" tokens")
        self.tokens.setGroupSeparatorShown(True)
        self.tokens.setValue(quota.tokens_per_day or 0)
        self.tokens.setEnabled(self.limited.isChecked())
        self.limited.toggled.connect(self.tokens.setEnabled)
        self.models = QLineEdit(", ".join(quota.models))
        self.models.setPlaceholderText("any")
        self.tokens.setAccessibleName("Tokens a day at most")
        form.addRow("A&nswers at once", self.streams)
        form.addRow(self.limited, self.tokens)
        form.addRow("Only the mo&dels", self.models)

    def limits(self) -> wire.Limits:
        """Return what is filled in."""
        return wire.Limits(
            streams=self.streams.value() or None,
            tokens_per_day=int(self.tokens.value()) if self.limited.isChecked() else None,
            models=words_of(self.models.text()),
        )


class NewKey(FormDialog):
    """Asks for a new API key, or a chat link with one."""

    def __init__(self, parent: QWidget, bridge: Bridge, users: list[str], then: Callable[[wire.Key], object]) -> None:
        super().__init__(parent, bridge, "New API key", yes="&Make the key", order=self.call, then=then)
        self.name = QLineEdit()
        self.name.setPlaceholderText("What it is for")
        self.scope = QComboBox()
        for scope in get_args(Scope):
            self.scope.addItem(SCOPE_TEXTS[scope], scope)
        self.life = QComboBox()
        for text, days in LIVES:
            self.life.addItem(text, days)
        self.user = QComboBox()
        self.user.addItem("nobody's", "")
        for name in users:
            self.user.addItem(name, name)
        self.link = QCheckBox("Show it as a chat &link, which fallow-chat opens")
        self.form.addRow("&Name", self.name)
        self.form.addRow("It &may", self.scope)
        self.form.addRow("It &ends", self.life)
        self.form.addRow("It is of", self.user)
        self.limits = LimitFields(self.form, Quota())
        self.form.addRow("", self.link)
        self.scope.currentIndexChanged.connect(lambda _: self.link.setEnabled(self.scope.currentData() == "chat"))
        self.wants_link = False
        """Whether what was ordered is to be handed over as a chat link; known when the dialog is gone, too."""

    def call(self) -> Call[wire.Key]:
        """Return the order. Raises ClientError."""
        if not self.name.text().strip():
            raise ClientError("Type a name, so that others know what the key is for.")
        self.wants_link = self.link.isChecked() and self.link.isEnabled()
        return calls.create_key(
            self.name.text().strip(),
            scope=self.scope.currentData(),
            days=self.life.currentData(),
            user=self.user.currentData(),
            limits=self.limits.limits(),
        )


class KeyLimits(FormDialog):
    """Asks for other limits of a key."""

    def __init__(self, parent: QWidget, bridge: Bridge, key: ApiKey, then: Callable[[ApiKey], object]) -> None:
        super().__init__(parent, bridge, f"Limits of {key.name}", yes="&Set", order=self.call, then=then)
        self._key_id = key.key_id
        self.limits = LimitFields(self.form, key.quota)

    def call(self) -> Call[ApiKey]:
        """Return the order."""
        return calls.limit_key(self._key_id, self.limits.limits())


def role_box(chosen: Role) -> QComboBox:
    """Return a choice of roles."""
    box = QComboBox()
    for role, text in ROLE_TEXTS.items():
        box.addItem(text, role)
    box.setCurrentIndex(box.findData(chosen))
    return box


def _same(password: QLineEdit, again: QLineEdit) -> str:
    if password.text() != again.text():
        raise ClientError("The two passwords are not the same; type them again.")
    return password.text()
