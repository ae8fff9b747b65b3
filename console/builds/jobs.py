"""The builds of this console: one works, the others wait for their turn; they go on whether anybody watches or not.

Everything runs on the service's event loop; the work is in a child process. A build ends with the service, and the next
start finds it as `interrupted`, with what it finished in the exporter's journal.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from agent.threads import finish_in_thread
from console.api.admin.build_types import Build, BuildDetail, BuildEstimate, BuildRequest, Builds, Folder
from console.builds import progress
from console.builds.attempt import Attempt
from console.builds.book import Book
from console.builds.estimating import estimate_build
from console.builds.exporter import Exporter, end_leftover
from console.builds.places import Places
from console.errors import BuildRefused, DeployRefused
from console.fleet.errors import LibraryNotServed
from console.libraries import LibraryShelf
from console.registry.audit import Actor
from console.registry.registry import Registry
from shard_export.library.errors import LibraryError
from shard_export.library.store import remove_tree, work_folder_of


class BuildJobs:
    """Starts, pauses, resumes, ends, publishes and describes builds."""

    def __init__(
        self,
        registry: Registry,
        shelf: LibraryShelf,
        book: Book,
        places: Places,
        exporter: Exporter | None = None,
        *,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self._registry, self._shelf, self._book, self._places = registry, shelf, book, places
        self._exporter = exporter or Exporter()
        self._now_s = now_s
        self._attempt: Attempt | None = None
        self._worker: asyncio.Task[None] | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._removing: set[str] = set()
        """Libraries whose finished layers are being removed."""
        self._closing = False

    async def restore(self) -> None:
        """Find the builds of before. Raises DataFolderUnusable."""
        await self._book.open()
        for build in self._book.all():
            if build.state in {"running", "stopping"}:
                await finish_in_thread(partial(end_leftover, build.process_id, build.process_started_s))
                await self._book.put(progress.found_again(build, self._now_s()))

    def go_on(self) -> None:
        """Begin the first of those that waited for their turn when the service stopped."""
        self._turn()

    async def close(self) -> None:
        """End the one that works; the next start finds it interrupted."""
        self._closing = True
        if self._attempt is not None and self._worker is not None:
            self._attempt.kill("interrupt")
            await asyncio.gather(self._worker, *self._stopping, return_exceptions=True)

    def views(self) -> Builds:
        """Describe all builds, the latest first."""
        now_s = self._now_s()
        return Builds(
            [progress.viewed(build, now_s) for build in reversed(self._book.all())], missing=self._exporter.missing
        )

    async def detail(self, build_id: str) -> BuildDetail:
        """Describe one build, with the end of its log. Raises NotFound."""
        build = progress.viewed(self._book.find(build_id), self._now_s())
        return BuildDetail(build, await asyncio.to_thread(self._book.records.tail, build_id))

    async def look(self, path: str) -> Folder:
        """List a folder of this PC. Raises BuildRefused."""
        return await asyncio.to_thread(self._places.look, path)

    async def estimate(self, request: BuildRequest) -> BuildEstimate:
        """Say what a build will need, and why it cannot be begun. Raises BuildRefused for paths that are no good."""
        return await self._estimated(await self._placed(request))

    async def begin(self, request: BuildRequest, actor: Actor) -> Build:
        """Begin a build, or let it wait for its turn. Raises BuildRefused."""
        request = await self._placed(request)
        await self._book.forget_old()
        estimate = await self._estimated(request)
        # From here to the book nothing is waited for: two that ask at once do not both get the folder.
        self._check_free(request.out, f"{request.out} is being built already; wait for that build, or cancel it.")
        if estimate.problems:
            raise BuildRefused(estimate.problems[0])
        build = Build(
            build_id=secrets.token_hex(6),
            request=request,
            target=str(self._shelf.of_model(request.draft_for).folder) if request.draft_for else "",
            model_id=estimate.model_id,
            family=estimate.family,
            layer=estimate.kept_layers,
            kept_layers=estimate.kept_layers,
            layer_count=estimate.layer_count,
            by=actor.name,
            created_s=self._now_s(),
            estimated_memory_bytes=estimate.memory_bytes,
            estimated_bytes=estimate.library_bytes,
            estimated_s=estimate.seconds,
            evaluate_memory_bytes=estimate.evaluate_memory_bytes,
            notes=estimate.notes,
        )
        self._registry.audit.append(actor, "build.start", build.build_id, source=request.source, out=request.out)
        await self._book.put(build)
        self._turn()
        return build

    async def pause(self, build_id: str, actor: Actor) -> Build:
        """Let a build end after the layer it is at; asked again: at once. Raises NotFound, BuildRefused."""
        build = self._book.find(build_id)
        if build.state not in {"queued", "running", "stopping"}:
            raise BuildRefused(f"The build of {build.model_id} does not run, so there is nothing to pause.")
        self._registry.audit.append(actor, "build.pause", build_id)
        if build.state == "queued":
            return await self._change(build, state="paused", message="It was paused before its turn came.")
        return await self._stop(build, "pause")

    async def resume(self, build_id: str, actor: Actor) -> Build:
        """Let a build go on after its last finished layer, when its turn comes. Raises NotFound, BuildRefused."""
        build = self._book.find(build_id)
        if not build.resumable:
            raise BuildRefused(f"The build of {build.model_id} is {build.state}, so it cannot be resumed.")
        out = build.request.out
        self._check_free(out, f"{out} is being built by another build; wait for that one.")
        self._registry.audit.append(actor, "build.resume", build_id)
        await self._change(build, state="queued", message="", error="")
        self._turn()
        return self._book.find(build_id)

    async def cancel(self, build_id: str, actor: Actor, *, discard: bool) -> Build:
        """End a build for good; `discard` removes the layers it finished. Raises NotFound, BuildRefused."""
        build = self._book.find(build_id)
        if build.state in {"built", "cancelled"}:
            raise BuildRefused(f"The build of {build.model_id} is {build.state}, so there is nothing to cancel.")
        if discard:
            out = build.request.out
            self._check_free(out, f"Another build into {out} needs these layers; cancel this one and keep them.", build)
        self._registry.audit.append(actor, "build.cancel", build_id, discard=discard)
        if discard:
            return await self._discard(build)
        if build.state in {"running", "stopping"}:
            return await self._stop(build, "cancel")
        return await self._cancelled(build, discarded=False)

    async def _discard(self, build: Build) -> Build:
        """End a build and remove its layers; until that is done nobody else gets its folder."""
        out = build.request.out
        self._removing.add(out)
        try:
            if build.state in {"running", "stopping"}:
                await self._kill("cancel")
                build = self._book.find(build.build_id)
                if build.state == "built":  # it was done before it could be ended
                    return build
            # First: what is cancelled does not get its turn while it is being removed.
            build = await self._cancelled(build, discarded=True)
            await finish_in_thread(partial(remove_tree, work_folder_of(Path(out))))
        finally:
            self._removing.discard(out)
        return build

    async def publish(self, build_id: str, actor: Actor) -> Build:
        """Make a finished library one that can be deployed. Raises NotFound, BuildRefused."""
        build = self._book.find(build_id)
        if build.state != "built":
            raise BuildRefused(f"The build of {build.model_id} is {build.state}; there is no library to publish yet.")
        await self._publish(build, actor)
        return self._book.find(build_id)

    async def _placed(self, request: BuildRequest) -> BuildRequest:
        """Return a request with its paths as they are, links followed. Raises BuildRefused."""
        source, out = [await asyncio.to_thread(self._places.place, text) for text in (request.source, request.out)]
        if out in {source, self._places.root} or out in source.parents:
            raise BuildRefused(f"{out} cannot be the library's folder; choose a new one, like {out}-library.")
        return msgspec.structs.replace(request, source=str(source), out=str(out))

    def _check_free(self, out: str, taken: str, but: Build | None = None) -> None:
        """Raise BuildRefused with `taken` if a build other than `but` goes on in a folder, or if it is tidied up."""
        if out in self._removing:
            raise BuildRefused(f"The finished layers of {out} are being removed; ask again in a moment.")
        others = [one for one in self._book.all() if but is None or one.build_id != but.build_id]
        if any(one.goes_on and one.request.out == out for one in others):
            raise BuildRefused(taken)

    async def _estimated(self, request: BuildRequest) -> BuildEstimate:
        waits = any(one.goes_on for one in self._book.all())
        return await estimate_build(request, self._exporter, self._obstacles, waits=waits)

    def _obstacles(self, request: BuildRequest) -> list[str]:
        """Return why a draft's target cannot be one, and why a library cannot be replaced."""
        found = []
        try:
            if request.draft_for:
                self._shelf.of_model(request.draft_for)
        except DeployRefused as error:
            found.append(str(error))
        return [*found, self._in_use(request)]

    def _in_use(self, request: BuildRequest) -> str:
        """Say why a build must not replace the library that is in its folder; empty: it may."""
        user = self._shelf.user_of_folder(Path(request.out)) if request.replace else ""
        return f"{request.out} cannot be replaced: {user}. End that first, or choose another folder." if user else ""

    async def _cancelled(self, build: Build, *, discarded: bool) -> Build:
        message = progress.cancelled_note(build, discarded=discarded)
        return await self._change(build, state="cancelled", message=message, layer=0 if discarded else build.layer)

    async def _publish(self, build: Build, actor: Actor) -> None:
        """Put a library on the shelf. Raises BuildRefused."""
        try:
            await self._shelf.add(Path(build.request.out), actor)
        except (LibraryError, LibraryNotServed) as error:
            raise BuildRefused(f"The library cannot be published: {error}") from None
        self._registry.audit.append(actor, "build.publish", build.build_id, model=build.model_id)
        await self._change(build, published=True, message="")

    async def _change(self, build: Build, **changes: Any) -> Build:
        return await self._book.put(msgspec.structs.replace(build, **changes))

    def _turn(self) -> None:
        """Begin the build whose turn it is, unless one works."""
        if self._closing or (self._worker is not None and not self._worker.done()):
            return
        waiting = next((build for build in self._book.all() if build.state == "queued"), None)
        if waiting is not None:
            by = Actor(waiting.by)
            publish = partial(self._publish, actor=by)
            self._attempt = Attempt(
                waiting.build_id, self._book, self._exporter, publish, self._now_s, in_use=self._in_use
            )
            self._worker = asyncio.create_task(self._attempt.run(), name=f"build {waiting.model_id}")
            self._worker.add_done_callback(lambda _: self._turn())

    async def _stop(self, build: Build, wish: progress.Wish) -> Build:
        """Have the one that works end: after its layer, or at once if it was asked before."""
        if self._attempt is None:
            return build
        if build.state == "stopping":
            await self._kill(wish)
            return self._book.find(build.build_id)
        self._in_background(self._attempt.stop(wish))
        message = "It stops after the layer it is working on, within a minute; ask again to stop at once."
        return await self._change(build, state="stopping", message=message)

    async def _kill(self, wish: progress.Wish) -> None:
        if self._attempt is not None and self._worker is not None:
            self._attempt.kill(wish)
            await asyncio.wait([self._worker])

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="stop a build")
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)
