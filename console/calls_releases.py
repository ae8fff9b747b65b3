"""What can be asked of the admin routes about releases: each function makes a Call, and does nothing by itself."""

from __future__ import annotations

from pathlib import Path

from console.api.admin.releases import NewRelease, ReleasesView, ReleaseView, RingChange
from console.call import Call
from console.calls import call, part
from console.registry.records import Ring

ADD_SILENCE_S = 300.0
"""The archive is copied and hashed first."""


def releases() -> Call[ReleasesView]:
    """List the releases."""
    return call("GET", "/releases", ReleasesView)


def add_release(file: Path) -> Call[ReleaseView]:
    """Take a signed release and the archive beside it, of the console's PC."""
    return call("POST", "/releases", ReleaseView, NewRelease(str(file)), silence_s=ADD_SILENCE_S)


def set_ring(release_id: str, ring: Ring, percent: int | None = None) -> Call[ReleaseView]:
    """Offer a release to a ring of PCs."""
    return call("POST", f"/releases/{part(release_id)}/ring", ReleaseView, RingChange(ring, percent))


def withdraw_release(release_id: str) -> Call[ReleaseView]:
    """Offer a release to nobody any more."""
    return call("POST", f"/releases/{part(release_id)}/withdraw", ReleaseView)
