"""console.metrics.scrape: samples become text that Prometheus reads, and only what the catalog names."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse

from console.metrics.catalog import CATALOG
from console.metrics.scrape import Scrape, exposed
from console.tallies import Tally


def test_what_nobody_counted_yet_is_named_all_the_same() -> None:
    body = exposed(Scrape(), "").body.decode()
    assert {(family.name, family.type) for family in parse(body)} == {(one.name, one.kind) for one in CATALOG}
    assert all(not family.samples for family in parse(body))


def test_a_tally_becomes_a_histogram_with_its_labels() -> None:
    scrape, tally = Scrape(), Tally((0.5, 1.0))
    for value in (0.25, 0.75, 4.0):
        tally.add(value)
    scrape.add("fallow_first_token_seconds", tally, 'a "model"\nof two lines')
    families = {family.name: family for family in parse(exposed(scrape, "").body.decode())}
    samples = families["fallow_first_token_seconds"].samples
    assert {sample.labels["model"] for sample in samples} == {'a "model"\nof two lines'}
    buckets = {sample.labels["le"]: sample.value for sample in samples if "le" in sample.labels}
    assert buckets == {"0.5": 1.0, "1.0": 2.0, "+Inf": 3.0}
    assert {sample.value for sample in samples if sample.name.endswith(("_count", "_sum"))} == {3.0, 5.0}


def test_whoever_asks_for_openmetrics_gets_it() -> None:
    scrape = Scrape()
    scrape.add("fallow_agents_lost", 3)
    exposition = exposed(scrape, "application/openmetrics-text;version=1.0.0,text/plain;q=0.5")
    assert exposition.content_type.startswith("application/openmetrics-text")
    families = parse_openmetrics(exposition.body.decode())  # type: ignore[no-untyped-call]  # not annotated there
    (lost,) = [one for one in families if one.name == "fallow_agents_lost"]
    assert [sample.value for sample in lost.samples] == [3.0]
    assert exposed(scrape, "text/html").content_type.startswith("text/plain")


def test_a_sample_that_the_catalog_does_not_describe_is_refused() -> None:
    scrape = Scrape()
    with pytest.raises(KeyError):
        scrape.add("fallow_unheard_of", 1)
    with pytest.raises(ValueError, match="labels"):
        scrape.add("fallow_agents", 1)
    with pytest.raises(TypeError):
        scrape.add("fallow_agents", Tally((1.0,)), "held")
    with pytest.raises(TypeError):
        scrape.add("fallow_first_token_seconds", 1.0, "small")


def test_no_label_is_one_that_grows_with_requests_or_people() -> None:
    named = {label for family in CATALOG for label in family.labels}
    assert not named & {"request", "request_id", "key", "key_id", "user", "name", "path", "text", "message"}


def test_what_is_counted_while_the_text_is_made_is_not_in_it() -> None:
    scrape, tally = Scrape(), Tally((1.0,))
    tally.add(0.5)
    scrape.add("fallow_first_token_seconds", tally, "small")
    tally.add(0.5)
    (family,) = [one for one in parse(exposed(scrape, "").body.decode()) if one.name == "fallow_first_token_seconds"]
    assert {sample.value for sample in family.samples} == {1.0, 0.5}
