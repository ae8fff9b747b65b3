"""A whole update in one process, to be killed: `python -m tests.support.killed_update FOLDER ARCHIVE SIGNED ROOT`.

What the running agent and its launcher do one after the other, on the same functions.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from agent.update.archives import Packed, measure
from agent.update.keeping import read_progress, write_progress
from agent.update.launch import begin
from agent.update.layout import Installation
from agent.update.progress import moved, taken
from agent.update.worker import Judge, Judged, Prepare, work
from tests.support.releases import HERE


def update(installation: Installation, archive: Path, signed: bytes, root_document: bytes) -> None:
    """Go on with the update from wherever it is, until the program that is current by then has ended."""
    if begin(installation, ["run"], 20.0) is not None or read_progress(installation).phase == "done":
        return
    root, program = os.fspath(installation.root), installation.current_program().name
    judged = work(Judge(root, program, root_document, signed, HERE))
    assert isinstance(judged, Judged)
    release, now_s = judged.release, time.time()
    progress = taken(read_progress(installation), release, installation.current(), now_s)
    write_progress(installation, progress)
    if progress.phase == "fetching":
        write_progress(installation, progress := moved(progress, "preparing", now_s))
    if progress.phase == "preparing":
        size, sha256 = measure(archive)
        packed = Packed(size, sha256, progress.unpacked_bytes, progress.entries)
        work(Prepare(root, program, os.fspath(archive), packed, progress.version))
        write_progress(installation, progress := moved(progress, "ready", now_s))
    write_progress(installation, moved(progress, "wanted", now_s))
    begin(installation, ["run"], 20.0)


if __name__ == "__main__":
    folder, archive, signed, root = map(Path, sys.argv[1:])
    update(Installation(folder, "fallow-agent"), archive, signed.read_bytes(), root.read_bytes())
