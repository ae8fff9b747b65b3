"""Errors of the console's service, deployments, HTTP client and command line.

ConsoleError
 ├─ DataFolderUnusable   the data folder cannot be used
 │   └─ DataFolderBusy   another console already runs on it
 ├─ PortUnavailable      a port of the service cannot be opened
 ├─ TelemetryUnusable    traces cannot be sent: a library is missing, or the address is none
 ├─ DeployError          a model could not be deployed; nothing of it is left behind
 │   ├─ DeployRefused    refused before anything was sent to a PC: unknown model, no plan, already running
 │   └─ DeployFailed     a PC failed: `device_id`, `device_name` and `code` say which and how
 ├─ BuildRefused         a library cannot be built so: no checkpoint, no room, a folder that may not be used
 ├─ ModelUnavailable     the model is known but cannot answer now: `retry_after_s` says when to ask again
 └─ ClientError          the command line could not do what it was asked
     ├─ UsageWrong           what was asked makes no sense
     ├─ ServiceUnreachable   no console answers at that address
     └─ ServiceRefused       the console said no: `status` and `code` say how

The registry, the fleet and the pipeline have their own trees beside their code.
"""

from __future__ import annotations


class ConsoleError(Exception):
    """Base: `str(error)` is one sentence saying what happened and what to do."""

    exit_code = 1


class DataFolderUnusable(ConsoleError):
    """The data folder cannot be used."""


class DataFolderBusy(DataFolderUnusable):
    """Another console already runs on this data folder."""


class PortUnavailable(ConsoleError):
    """A port of the service cannot be opened."""


class TelemetryUnusable(ConsoleError):
    """Traces cannot be sent as asked."""

    exit_code = 2


class DeployError(ConsoleError):
    """A model could not be deployed; nothing of the attempt is left behind."""


class DeployRefused(DeployError):
    """Refused before anything was sent to a PC."""


class DeployFailed(DeployError):
    """A PC could not take its stage. `code` is the agent's code, or `lost`, `timeout`, `mismatch` or `probe`."""

    def __init__(self, message: str, *, code: str, device_id: str = "", device_name: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.device_id = device_id
        self.device_name = device_name


class BuildRefused(ConsoleError):
    """A library cannot be built so, or a build cannot be changed so now."""


class ReleaseUnusable(ConsoleError):
    """A release cannot be taken: it, or its archive, is not what it should be."""


class ModelUnavailable(ConsoleError):
    """The model is known but cannot answer now."""

    def __init__(self, message: str, *, retry_after_s: int = 5, code: str = "not_ready") -> None:
        """`code` is what clients read: `not_ready`, or `overloaded` for a model that is up and full."""
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.code = code


class ClientError(ConsoleError):
    """The command line could not do what it was asked."""


class UsageWrong(ClientError):
    """What was asked of the command line makes no sense."""

    exit_code = 2


class ServiceUnreachable(ClientError):
    """No console answers at that address."""

    exit_code = 3


class ServiceRefused(ClientError):
    """The console said no: `status` is the HTTP status, `code` the error's code."""

    def __init__(self, message: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code
