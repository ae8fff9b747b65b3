"""The headless console: one event loop with the hub for agents, the deployed models and the HTTP API.

async with ConsoleService(settings) as service:
    await service.wait_closed()
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import socket
import time
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from agent.link.closing import CloseCode
from agent.link.errors import KeyLocked
from agent.link.keystore import Keystore
from agent.threads import finish_in_thread
from console.addresses import EVERYWHERE, default_urls, is_loopback, own_address
from console.api.admin import types as wire
from console.api.admin.access import AccessRoutes
from console.api.admin.builds import BuildRoutes
from console.api.admin.lately import LatelyRoutes
from console.api.admin.log_levels import LogLevelRoutes
from console.api.admin.members import MemberRoutes
from console.api.admin.planning import PlanningRoutes
from console.api.admin.policy import PolicyRoutes
from console.api.admin.releases import ReleaseRoutes
from console.api.admin.routes import AdminRoutes
from console.api.app import RequestCounts, build_app
from console.api.auth import Gate
from console.api.authority import AuthorityRoutes
from console.api.health import HealthRoutes
from console.api.metrics import MetricsRoutes
from console.api.openai.routes import OpenAIRoutes
from console.api.quotas import Quotas
from console.api.server import ApiServer
from console.api.tls import api_tls
from console.builds.book import Book
from console.builds.jobs import BuildJobs
from console.builds.places import Places
from console.builds.records import Records
from console.credentials import ensure_admin_key, open_authority
from console.data import (
    ServiceFile,
    authority_path,
    builds_path,
    lock_folder,
    prepare,
    registry_path,
    releases_path,
    remove,
    service_file_path,
    write_whole,
)
from console.deliveries import DeliveryJobs
from console.deployments.deployments import Deployments
from console.errors import DataFolderUnusable, PortUnavailable
from console.facts import FleetFacts
from console.fleet.admission import Admission
from console.fleet.clones import CloneWatch
from console.fleet.distribution import Distribution
from console.fleet.doorkeeper import asking, on_this_loop
from console.fleet.enrol import EnrolHandler
from console.fleet.hub import HEARTBEAT_S, Hub
from console.fleet.policies import PolicyPost
from console.fleet.presence import Presence
from console.fleet.releases import ReleasePost
from console.fleet.upkeep import Upkeep
from console.fleet.whereabouts import Whereabouts
from console.libraries import LibraryShelf
from console.metrics.collecting import ConsoleMetrics
from console.planning import Planning
from console.registry.authority import Authority
from console.registry.errors import RegistryError
from console.registry.registry import Registry
from console.registry.signing import Signer
from console.releases import ReleaseShelf
from console.telemetry.opening import open_tracer
from console.telemetry.tracing import NO_TRACER, Tracer

log = logging.getLogger(__name__)

VERSION = importlib.metadata.version("fallow")


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is started with. Port 0 takes any free one; `advertise` are the addresses for invites."""

    folder: Path
    api_host: str = "127.0.0.1"
    api_port: int = 0
    agents_host: str = "127.0.0.1"
    agents_port: int = 0
    advertise: list[str] = []
    database: str = ""
    """A SQLAlchemy URL; empty: SQLite in `folder`."""
    keyring: bool = True
    """Whether the passphrase of the authority's key may go to the system's keyring."""
    fleet_name: str = "Fallow"
    direct_links: bool = False
    """Whether PCs that serve a stage may listen for the PC before them; else everything goes through this one."""
    heartbeat_s: float = HEARTBEAT_S
    """How often PCs say that they are alive; one that misses three is taken for lost."""
    models_folder: Path | None = None
    """Below it checkpoints are read and libraries are built; None: the home folder of whoever runs the service."""
    cors_origins: list[str] = []
    """Whose web pages may use `/v1` from a browser; none unless somebody asks for it."""
    otlp_endpoint: str = ""
    """The collector that traces of answers are sent to; empty: none are made."""


class ConsoleService:
    """Owns every part of the console. Start, stop and everything between on one event loop.

    Raises ConsoleError when a folder, port or key is not usable; nothing is left open then.
    """

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._started_s = time.time()
        self._exit = contextlib.AsyncExitStack()
        self._agents_urls: list[str] = []
        self._registry: Registry
        self._hub: Hub
        self._deployments: Deployments
        self._deliveries: DeliveryJobs
        self._builds: BuildJobs
        self._api: ApiServer

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Open everything; returns when agents and clients are served and `service.json` says where."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End streams with an error object, say goodbye to the agents, close everything. Safe to call twice."""
        await self._exit.aclose()

    @property
    def data_folder(self) -> Path:
        return self._settings.folder

    @property
    def api_url(self) -> str:
        """The address of the API, with its real port."""
        return self._api.url

    def agents_urls(self) -> list[str]:
        """List the addresses that go into invites."""
        return self._agents_urls

    async def status(self) -> wire.Status:
        """Describe the whole service now."""
        known = await self._registry.ask(self._registry.devices.count)
        return wire.Status(
            version=VERSION,
            started_s=self._started_s,
            api_url=self.api_url,
            agents_urls=self._agents_urls,
            agents_connected=len(self._hub.agents()),
            agents_known=known,
            pipelines=self._deployments.views(),
        )

    def pipelines_up(self) -> tuple[tuple[int, int], ...]:
        """List what is up, by pipeline and epoch."""
        return tuple((live.pipeline, live.epoch) for live in self._deployments.live())

    @property
    def is_resting(self) -> bool:
        """Whether no answer is running or waiting."""
        return all(live.coordinator.load == (0, 0) for live in self._deployments.live())

    async def _start(self) -> None:
        settings, folder = self._settings, self._settings.folder
        tracer = self._open_tracer()
        prepare(folder)
        self._exit.callback(lock_folder(folder).release)
        authority = await self._open_registry()
        distribution = Distribution()
        shelf = LibraryShelf(self._registry, distribution)
        await shelf.open()
        post = await self._make_hub(authority, distribution)
        releases = await self._open_releases(distribution)
        self._deployments = Deployments(self._registry, self._hub, shelf)
        self._deployments.tell_answers(tracer.answered)
        self._deliveries = DeliveryJobs(self._registry, self._hub, shelf)
        places = Places(settings.models_folder or Path.home())
        self._builds = BuildJobs(self._registry, shelf, Book(Records(builds_path(folder))), places)
        agents_port = await self._open_agents_port(authority)
        self._agents_urls = settings.advertise or default_urls(settings.agents_host, agents_port)
        presence = await self._open_presence(authority, post)
        counts = RequestCounts()
        ask = self._registry.ask
        gate, quotas = Gate(self._registry, ask=ask), Quotas(self._registry.usage, ask=ask)
        routes = [
            *MetricsRoutes(self._count(counts, presence), self._registry, gate).routes(),
            *OpenAIRoutes(self._deployments, gate, quotas, tracer).routes(),
            *self._fleet_routes(authority, gate, post, presence),
            *self._model_routes(shelf, gate),
            *ReleaseRoutes(releases, gate).routes(),
        ]
        await self._open_api(build_app(routes, cors_origins=settings.cors_origins, counts=counts), authority)
        self._go_on(authority)
        self._announce(agents_port)

    async def _make_hub(self, authority: Authority, distribution: Distribution) -> PolicyPost:
        settings, signer = self._settings, Signer(authority)
        self._hub = Hub(
            asking(self._registry, authority.fleet_id, self._expel),
            enrol=EnrolHandler(
                Admission(self._registry, authority, expel=on_this_loop(self._expel)), ask=self._registry.ask
            ).handle,
            files=distribution.find,
            sign=signer.sign,
            clones=CloneWatch(self._registry),
            heartbeat_s=settings.heartbeat_s,
            direct_links=settings.direct_links,
            hands_over=True,
        )
        post = PolicyPost(self._registry, self._hub, authority.fleet_id, signer.sign_policy)
        await post.start()
        self._exit.push_async_callback(post.stop)
        # Before the deployments: a PC knows what it may do before it is asked to do something.
        self._exit.callback(self._hub.subscribe(post.on_fleet_event))
        return post

    def _fleet_routes(
        self, authority: Authority, gate: Gate, post: PolicyPost, presence: Presence | None
    ) -> list[BaseRoute]:
        registry, hub = self._registry, self._hub
        members = MemberRoutes(registry, authority, hub, self.agents_urls, gate, presence=presence, post=post)
        return [
            *members.routes(),
            *LatelyRoutes(registry, hub, gate).routes(),
            *PolicyRoutes(registry, post, gate).routes(),
            *AccessRoutes(registry, gate).routes(),
            *LogLevelRoutes(registry, gate).routes(),
            *AuthorityRoutes(lambda: authority.authorities_pem).routes(),
        ]

    def _model_routes(self, shelf: LibraryShelf, gate: Gate) -> list[BaseRoute]:
        deployments = self._deployments
        admin = AdminRoutes(shelf=shelf, deployments=deployments, deliveries=self._deliveries, overview=self, gate=gate)
        planning = Planning(FleetFacts(self._registry, self._hub), shelf, deployments)
        return [
            *HealthRoutes(deployments.probe, gate).routes(),
            *admin.routes(),
            *PlanningRoutes(planning, gate).routes(),
            *BuildRoutes(self._builds, gate).routes(),
        ]

    async def _open_api(self, app: ASGIApp, authority: Authority) -> None:
        self._api = await self._make_api(app, authority)
        # Before anybody can ask: until then a build is neither found nor known to hold its folder.
        await self._builds.restore()
        await self._api.start()
        self._exit.push_async_callback(self._api.stop)

    def _go_on(self, authority: Authority) -> None:
        """Take up what was under way when the service stopped."""
        upkeep = Upkeep(self._registry, authority)
        upkeep.start()
        self._exit.push_async_callback(upkeep.stop)
        # Pushed last, closed first: the streams end with an error object while their connections are still open.
        self._exit.push_async_callback(self._deployments.close)
        self._exit.push_async_callback(self._deliveries.close)
        self._exit.push_async_callback(self._builds.close)
        self._deployments.restore()
        self._deliveries.restore()
        self._builds.go_on()

    def _expel(self, device_id: str, sentence: str) -> None:
        self._hub.disconnect(device_id, CloseCode.NOT_APPROVED, "suspended", sentence)

    async def _open_registry(self) -> Authority:
        settings, folder = self._settings, self._settings.folder
        keystore = Keystore("console") if settings.keyring else Keystore.files_only("console")
        try:
            where = settings.database or registry_path(folder)
            self._registry = await finish_in_thread(partial(Registry.open, where), Registry.close)
            self._exit.callback(self._registry.close)
            return await finish_in_thread(
                partial(open_authority, self._registry, authority_path(folder), keystore, settings.fleet_name)
            )
        except (RegistryError, KeyLocked) as error:
            raise DataFolderUnusable(str(error)) from None
        except OSError as error:
            raise DataFolderUnusable(
                f"The data folder {folder} cannot be used ({error.strerror}); free space or fix its rights."
            ) from None

    def _open_tracer(self) -> Tracer:
        if not self._settings.otlp_endpoint:
            return NO_TRACER
        tracer = open_tracer(self._settings.otlp_endpoint, VERSION)
        # Closed last: what ends while everything stops is told, too.
        self._exit.push_async_callback(tracer.close)
        return tracer

    def _count(self, counts: RequestCounts, presence: Presence | None) -> ConsoleMetrics:
        """Have everything counted from now on."""
        metrics = ConsoleMetrics(
            version=VERSION,
            deployments=self._deployments,
            hub=self._hub,
            requests=counts,
            elsewhere=lambda: 0 if presence is None else len(presence.elsewhere),
        )
        self._exit.callback(self._hub.subscribe(metrics.fleet.on_fleet_event))
        return metrics

    async def _open_releases(self, distribution: Distribution) -> ReleaseShelf:
        post = ReleasePost(self._registry, self._hub, lambda sha256: distribution.find(sha256) is not None)
        shelf = ReleaseShelf(self._registry, distribution, post, releases_path(self._settings.folder))
        await shelf.open()
        self._exit.callback(self._hub.subscribe(post.on_fleet_event))
        post.start()
        self._exit.push_async_callback(post.stop)
        return shelf

    async def _open_presence(self, authority: Authority, post: PolicyPost) -> Presence | None:
        """Join the other consoles of a shared registry."""
        if not self._registry.is_shared:
            return None
        presence = Presence(self._registry, self._hub, authority, socket.gethostname(), post=post)
        await presence.start()
        self._exit.push_async_callback(presence.stop)
        return presence

    async def _open_agents_port(self, authority: Authority) -> int:
        settings = self._settings
        whereabouts = Whereabouts(self._registry)
        whereabouts.start()
        self._exit.push_async_callback(whereabouts.stop)
        listeners = (whereabouts.on_fleet_event, self._deployments.on_fleet_event, self._deliveries.on_fleet_event)
        for listener in listeners:
            self._exit.callback(self._hub.subscribe(listener))
        try:
            port = await self._hub.start(settings.agents_host, settings.agents_port, authority.server_context())
        except OSError as error:
            raise PortUnavailable(
                f"The agents' port {settings.agents_host}:{settings.agents_port} cannot be opened "
                f"({error.strerror}); choose another with --agents-port."
            ) from None
        self._exit.push_async_callback(self._hub.stop)
        return port

    async def _make_api(self, app: ASGIApp, authority: Authority) -> ApiServer:
        host, port = self._settings.api_host, self._settings.api_port
        if is_loopback(host):
            return ApiServer(app, host=host, port=port)
        dialled_as = own_address() if host in EVERYWHERE else host
        names = [dialled_as, socket.gethostname(), "localhost", "127.0.0.1"]
        tls = await asyncio.to_thread(api_tls, authority, names)
        return ApiServer(app, host=host, port=port, tls=tls, dialled_as=dialled_as)

    def _announce(self, agents_port: int) -> None:
        """Write the local admin key if there is none that works, then `service.json`, whose presence means: running."""
        folder = self._settings.folder
        ensure_admin_key(self._registry, folder)
        service = ServiceFile(
            process_id=os.getpid(),
            version=VERSION,
            api_url=self.api_url,
            agents_urls=self._agents_urls,
            agents_port=agents_port,
            authority_file=str(authority_path(folder) / "authorities.pem"),
            started_s=self._started_s,
        )
        path = service_file_path(folder)
        write_whole(path, msgspec.json.format(msgspec.json.encode(service)) + b"\n")
        self._exit.callback(remove, path)
