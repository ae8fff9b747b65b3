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


class Scrape:
    """Collects samples. Also a metric without any is exposed, so that who writes a query finds its name."""

    def __init__(self, catalog: Sequence[Family] = CATALOG) -> None:
        self._families = {family.name: (family, _MAKERS[family.kind](family)) for family in catalog}

    def add(self, name: str, value: float | Tally, *labels: str) -> None:
        """Add a sample with its labels' values, in the catalog's order. Raises KeyError, ValueError, TypeError."""
        family, metric = self._families[name]
        if len(labels) != len(family.labels):
            raise ValueError(f"{name} has the labels {family.labels}, not {labels}.")
        if isinstance(metric, HistogramMetricFamily):
            if not isinstance(value, Tally):
                raise TypeError(f"{name} is a histogram.")
            bounds = [(str(float(bound)), float(count)) for bound, count in value.cumulative()]
            metric.add_metric(labels, [*bounds[:-1], ("+Inf", bounds[-1][1])], value.sum)
        elif isinstance(metric, CounterMetricFamily | GaugeMetricFamily) and not isinstance(value, Tally):
            metric.add_metric(labels, value)
        else:
            raise TypeError(f"{name} is no histogram.")

    def metrics(self) -> list[Metric]:
        """Return everything, in the catalog's order."""
        return [metric for _, metric in self._families.values()]


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
    """Write a scrape down in the format that the `Accept` header asks for; the plain text one otherwise."""
    # A registry of its own: what other libraries count in the global one is not ours to tell.
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Once(scrape.metrics()))
    encode, content_type = choose_encoder(accept)
    return Exposition(encode(registry), content_type)
