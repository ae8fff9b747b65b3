"""Every alert fires when it should and is silent when not: `promtool` with assets/grafana/alerts.test.yml."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.support.prometheus import promtool, skip_without_prometheus

ASSETS = Path(__file__).parents[4] / "assets" / "grafana"
RULES = yaml.safe_load((ASSETS / "alerts.yml").read_text("utf-8"))
TESTS: list[dict[str, Any]] = yaml.safe_load((ASSETS / "alerts.test.yml").read_text("utf-8"))["tests"]
_NAME = re.compile(r"(fires|silent): (\w+) ")


def test_the_rules_are_rules() -> None:
    skip_without_prometheus()
    promtool("check", "rules", "--lint=all", "--lint-fatal", ASSETS / "alerts.yml")


def test_what_each_alert_says_and_when_it_is_silent() -> None:
    skip_without_prometheus()
    promtool("test", "rules", ASSETS / "alerts.test.yml")


def test_every_alert_is_seen_firing_and_silent() -> None:
    seen = set()
    for test in TESTS:
        name = _NAME.match(test["name"])
        assert name, test["name"]
        kind, alert = name.groups()
        seen.add((alert, kind))
        assert {one["alertname"] for one in test["alert_rule_test"]} == {alert}, test["name"]
        assert any(one["exp_alerts"] for one in test["alert_rule_test"]) == (kind == "fires"), test["name"]
    alerts = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
    assert seen == {(alert, kind) for alert in alerts for kind in ("fires", "silent")}
