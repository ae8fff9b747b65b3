"""Errors of a stage.

StageError
 ├─ StageLoadError   the stage could not be loaded; `code` as in StageFailed (`damaged`, `memory`, `load` ...)
 ├─ StageGone        the child process has ended
 ├─ GrammarUnusable  an answer cannot be kept to its grammar; the other streams go on
 └─ StepError        one step failed; `code` is what the NACK carries
     ├─ Yielded      `yielded`: this PC's owner is back and nothing is computed
     ├─ BadStep      `bad_step`: the frame contradicts the stage's state
     ├─ KvFull       `kv_full`: the cache has no room for the step's tokens
     ├─ EngineFailed `engine`: inference failed or gave no finite numbers
     └─ StaleEpoch   `stale`: the frame belongs to another plan epoch
"""

from __future__ import annotations


class StageError(Exception):
    """Base of the stage: `str(error)` is one sentence saying what happened and what to do."""


class StageLoadError(StageError):
    """The stage could not be loaded; `code` is fit for a StageFailed message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StageGone(StageError):
    """The child process of the stage has ended."""


class GrammarUnusable(StageError):
    """An answer cannot be kept to its grammar."""


class StepError(StageError):
    """One step failed after its frame was read; the stage stays up."""

    code = "engine"


class Yielded(StepError):
    """This PC's owner is back: nothing more is computed here."""

    code = "yielded"


class BadStep(StepError):
    """The frame contradicts the stage's state."""

    code = "bad_step"


class KvFull(StepError):
    """The cache has no room for the step's tokens."""

    code = "kv_full"


class EngineFailed(StepError):
    """Inference failed or gave no finite numbers."""


class StaleEpoch(StepError):
    """The frame belongs to another plan epoch."""

    code = "stale"
