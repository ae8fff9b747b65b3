"""A scrape of the whole console. Everything is read where it is kept; nothing is counted twice for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import get_args

import psutil

from console.api.app import RequestCounts
from console.deployments.deployments import Deployments
from console.fleet.hub import Hub
from console.fleet.relay import DropCause
from console.metrics.fleet import FleetCounts, agents_by_state, collect_counts, held_by_reason
from console.metrics.pipelines import collect_models, collect_pipelines
from console.metrics.scrape import Scrape
from console.registry.records import DeviceState


class ConsoleMetrics:
    """Reads the parts of a console. Event loop only."""

    def __init__(
        self,
        *,
        version: str,
        deployments: Deployments,
        hub: Hub,
        requests: RequestCounts,
        elsewhere: Callable[[], int],
    ) -> None:
        """`elsewhere` counts the PCs that other consoles of the registry hold."""
        self._version = version
        self._deployments = deployments
        self._hub = hub
        self._requests = requests
        self._elsewhere = elsewhere
        self._process = psutil.Process()
        self.fleet = FleetCounts()
        """Hears the hub's events."""

    def scrape(self, known: Mapping[DeviceState, int]) -> Scrape:
        """Collect everything; writing it down may be done elsewhere. `known` counts the devices of the registry."""
        scrape = Scrape()
        scrape.add("fallow_build_info", 1, self._version)
        self._collect_requests(scrape)
        collect_models(self._deployments.totals(), scrape)
        collect_pipelines(self._deployments.entries(), self._hub, scrape)
        self._collect_fleet(known, scrape)
        self._collect_process(scrape)
        return scrape

    def _collect_requests(self, scrape: Scrape) -> None:
        done = self._requests.done
        for labels in sorted({*done, *self._requests.possible}):
            scrape.add("fallow_http_requests", done[labels], *labels)
        scrape.add("fallow_http_requests_running", self._requests.running)

    def _collect_fleet(self, known: Mapping[DeviceState, int], scrape: Scrape) -> None:
        live, connected = self._deployments.live(), self._hub.agents()
        states = agents_by_state(
            known,
            connected,
            serving={device_id for one in live for device_id in one.device_ids},
            reserve={device_id for one in live for device_id in (*one.held, *one.warm)},
            elsewhere=self._elsewhere(),
        )
        for state, count in sorted(states.items()):
            scrape.add("fallow_agents", count, state)
        for reason, count in sorted(held_by_reason(connected).items()):
            scrape.add("fallow_agents_held", count, reason)
        collect_counts(self.fleet, scrape)
        dropped = self._hub.dropped_frames
        for cause in sorted({*dropped, *get_args(DropCause)}):
            scrape.add("fallow_frames_dropped", dropped.get(cause, 0), cause)
        scrape.add("fallow_bulk_bytes", self._hub.bulk_bytes)

    def _collect_process(self, scrape: Scrape) -> None:
        with self._process.oneshot():
            used = self._process.cpu_times()
            scrape.add("process_cpu_seconds", used.user + used.system)
            scrape.add("process_resident_memory_bytes", self._process.memory_info().rss)
            scrape.add("process_start_time_seconds", self._process.create_time())
