"""What can go wrong with the control socket.

ControlError
 ├─ ControlUnavailable   the socket cannot be opened or reached
 │   └─ NotRunning       no agent runs in this data folder
 └─ OrderRefused         the agent said no: `code` for programs, the sentence for people
"""

from __future__ import annotations

from agent.control.protocol import RefusalCode


class ControlError(Exception):
    """Talking to the running agent failed. The sentence says what happened and what to do."""

    exit_code = 18


class ControlUnavailable(ControlError):
    """The socket cannot be opened or reached."""


class NotRunning(ControlUnavailable):
    """No agent runs in this data folder."""

    exit_code = 3

    def __init__(self) -> None:
        super().__init__("The agent is not running; start it with `fallow-agent run`.")


class OrderRefused(ControlError):
    """The agent did not do what it was asked."""

    exit_code = 19

    def __init__(self, message: str, code: RefusalCode) -> None:
        super().__init__(message)
        self.code = code
