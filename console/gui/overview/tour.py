"""The three steps from an empty service to a chat, and how far somebody is. Pure; no Qt here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from console.api.admin import types as wire

CHAT = "chat"
"""The `page` of the step that opens the chat, which is no page."""


class TourStep(NamedTuple):
    """`page` and `what` are where it is done (see Page.wants), `button` what the button says."""

    text: str
    about: str
    done: bool
    button: str
    page: str
    what: str = ""


def tour(
    status: wire.Status, agents: Sequence[wire.Agent], libraries: Sequence[wire.Library] | None
) -> tuple[TourStep, TourStep, TourStep]:
    """Say what is done already: PCs that were let in, a model that was served, an answer that was given."""
    known = libraries or ()
    served = bool(status.pipelines)
    if known and not served:
        model = TourStep("Deploy a model", "The planner chooses the PCs, and says why.", done=False,
                         button="Deploy a model", page="models", what=known[0].model_id)  # fmt: skip
    else:
        model = TourStep("Build a model", "From a checkpoint, once for all plans; then deploy it.", done=served,
                         button="Build a model", page="models")  # fmt: skip
    return (
        TourStep("Invite PCs", "Each joins with one line of text, and works while its owner is away.",
                 done=any(agent.state == "active" for agent in agents), button="Invite PCs", page="invites"),
        model,
        TourStep("Open the chat", "Make a key with a chat link under People and keys, and ask.",
                 done=any(pipeline.endings for pipeline in status.pipelines), button="Open chat", page=CHAT),
    )  # fmt: skip
