"""The work of an update that takes memory, processor or disk, in a process of its own: `python -m agent.update.worker`.

It reads one request on standard input and writes one answer. The agent stays small, and the process is below every
other program. Whatever kills it when leaves the installation as it was, or with one more version in it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import msgspec

from agent.children import NO_WINDOW, log_words
from agent.stage.priority import make_way
from agent.update.archives import Packed, unpack
from agent.update.errors import ArchiveRefused, InstallationBroken, ReleaseRefused, UpdateError, VersionUnfit
from agent.update.fitness import examine
from agent.update.layout import Installation
from agent.update.releases import Here, Release, decode_signed, judge

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 1 << 20
WORK_S = 900.0


class Judge(msgspec.Struct, frozen=True, tag=True):
    """Is this release vouched for and for this PC? Answered by the Release."""

    root: str
    """The installation."""
    program: str
    anchor: bytes
    """The root document that this PC trusts."""
    signed: bytes
    here: Here


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Put what was fetched beside the running version and let it examine itself. Answered by Prepared."""

    root: str
    program: str
    archive: str
    packed: Packed
    version: str


class Prepared(msgspec.Struct, frozen=True, tag=True):
    """It lies beside the running version and works."""


class Judged(msgspec.Struct, frozen=True, tag=True):
    """Somebody vouches for it, and it is for this PC."""

    release: Release


class Problem(msgspec.Struct, frozen=True, tag=True):
    """Why not. `kind` names the error."""

    kind: str
    code: str
    sentence: str


Request = Judge | Prepare
Answer = Prepared | Judged | Problem
_KINDS = {kind.__name__: kind for kind in (ArchiveRefused, InstallationBroken, VersionUnfit)}


async def ask_worker(request: Request) -> Answer:
    """Have a request answered by a process of its own. Raises UpdateError as if the work had been done here.

    Cancelling ends the process, at whatever it is.
    """
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent.update.worker",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        creationflags=NO_WINDOW,
    )  # fmt: skip
    try:
        async with asyncio.timeout(WORK_S):
            out, err = await child.communicate(msgspec.json.encode(request))
        words = log_words(log, "update", err)
        answer = msgspec.json.decode(out, type=Answer)
    except TimeoutError:
        raise UpdateError(f"The update's work did not end in {WORK_S:.0f} s; it is tried again.") from None
    except msgspec.MsgspecError:
        raise UpdateError(f"The update's work failed ({words or child.returncode}); look at the log.") from None
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if not isinstance(answer, Problem):
        return answer
    if answer.kind == ReleaseRefused.__name__:
        raise ReleaseRefused(answer.sentence, answer.code)  # type: ignore[arg-type]  # it was one
    raise _KINDS.get(answer.kind, UpdateError)(answer.sentence)


def work(request: Request) -> Answer:
    """Do what is asked, in this process. Raises UpdateError or OSError."""
    installation = Installation(Path(request.root), request.program)
    if isinstance(request, Judge):
        # The client of The Update Framework takes a moment to import, and unpacking does without.
        from agent.update.trust import verify

        def check(release: Release) -> None:
            judge(release, request.here)

        installation.prepare()
        return Judged(verify(decode_signed(request.signed), request.anchor, installation.trusted, check))
    put_beside(installation, Path(request.archive), request.packed, request.version)
    return Prepared()


def put_beside(installation: Installation, archive: Path, packed: Packed, version: str) -> None:
    """Unpack a version, place it, and let it examine itself; one that is not fit goes again.

    Raises UpdateError or OSError.
    """
    if version == installation.current():
        raise InstallationBroken(f"{version} is the current version and is not replaced by itself.")
    installation.clear()
    folder = installation.new_folder()
    unpack(archive, folder, packed)
    installation.place(folder, version)
    try:
        examine(installation.program(version), version)
    except VersionUnfit:
        installation.remove(version)
        raise


def main() -> int:
    """Answer one request."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    data = sys.stdin.buffer.read(MAX_REQUEST_BYTES)
    make_way()
    answer: Answer
    try:
        answer = work(msgspec.json.decode(data, type=Request))
    except UpdateError as error:
        answer = Problem(type(error).__name__, getattr(error, "code", ""), str(error))
    except OSError as error:
        reason = error.strerror or type(error).__name__
        answer = Problem(UpdateError.__name__, "", f"A file cannot be used ({reason}); check disk and permissions.")
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    sys.exit(main())
