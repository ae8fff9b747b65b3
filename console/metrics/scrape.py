"""One scrape: samples of the catalog's metrics, and the text Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from console.metrics.catalog import CATALOG, Family
from console.tallies import Tally

_MAKERS: dict[str, Callable[[Family], Metric]] = {
    "counter": lambda family: CounterMetricFamily(family.name, family.about, labels=family.labels),
    "gauge": lambda family: GaugeMetricFamily(family.name, family.about, labels=family.labels),
    "histogram": lambda family: HistogramMetricFamily(family.name, family.about, labels=family.labels),
}


class Buckets(NamedTuple):
    """A tally as it was: its bounds with the number of values at most that large, and the sum of all."""

    cumulative: list[tuple[float, int]]
    sum: float


class Scrape:
    """Collects samples, on the loop of what is counted; the rest is for another thread.

    Also a metric without any is exposed, so that who writes a query finds its name.
    """

    def __init__(self, catalog: Sequence[Family] = CATALOG) -> None:
        self._catalog = {family.name: family for family in catalog}
        self._samples: list[tuple[str, float | Buckets, tuple[str, ...]]] = []

    def add(self, name: str, value: float | Tally, *labels: str) -> None:
        """Add a sample with its labels' values, in the catalog's order. Raises KeyError, ValueError, TypeError."""
        family = self._catalog[name]
        if len(labels) != len(family.labels):
            raise ValueError(f"{name} has the labels {family.labels}, not {labels}.")
        if isinstance(value, Tally) != (family.kind == "histogram"):
            raise TypeError(f"{name} is a {family.kind}.")
        taken = Buckets(list(value.cumulative()), value.sum) if isinstance(value, Tally) else value
        self._samples.append((name, taken, labels))

    def metrics(self) -> list[Metric]:
        """Return everything, in the catalog's order."""
        made = {name: _MAKERS[family.kind](family) for name, family in self._catalog.items()}
        for name, value, labels in self._samples:
            metric = made[name]
            if isinstance(metric, HistogramMetricFamily) and isinstance(value, Buckets):
                *bounds, (_, count) = value.cumulative
                metric.add_metric(
                    labels, [*((str(float(one)), many) for one, many in bounds), ("+Inf", count)], value.sum
                )
            elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily) and not isinstance(value, Buckets):
                metric.add_metric(labels, value)
        return list(made.values())


class Exposition(NamedTuple):
    """What a scrape answers with."""

    body: bytes
    content_type: str


class _Once(Collector):
    """Hands over what was collected already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def exposed(scrape: Scrape, accept: str) -> Exposition:
    """Write a scrape down in the format that the `Accept` header asks for; the plain text one otherwise.

    Of a large fleet this is a megabyte and takes a tenth of a second.
    """
    # A registry of its own: what other libraries count in the global one is not ours to tell.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(scrape.metrics()))
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(registry), content_type)
