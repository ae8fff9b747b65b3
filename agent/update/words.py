"""What people are told of an update. Pure."""

from __future__ import annotations

from agent.update.progress import Progress


def sentence_of(progress: Progress, why_off: str) -> str:
    """Say in a sentence how far the update is."""
    if why_off:
        return why_off
    version = progress.version
    after = f" The last try: {progress.problem}" if progress.problem else ""
    if progress.phase == "fetching":
        return f"Version {version} is being fetched.{after}"
    if progress.phase == "preparing":
        return f"Version {version} is here and is unpacked while nobody uses this PC.{after}"
    if progress.phase == "ready":
        return f"Version {version} is ready; the agent changes to it while nobody uses this PC.{after}"
    if progress.phase in ("wanted", "trying"):
        return f"Version {version} is being tried."
    if progress.phase == "done":
        return f"Version {version} was installed by an update."
    if progress.phase == "failed":
        return f"The update to {version} was given up: {progress.problem}"
    return "No newer version was offered."
