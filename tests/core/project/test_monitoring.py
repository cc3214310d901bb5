"""docs/metrics.md, the alerts and the dashboard name metrics that there are, with labels that they have.

That a drain and a compaction serve them does not belong here (`tests/scenarios/test_metrics.py`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lakeproof.metrics import definitions as m
from tests.support.pages.monitoring_queries import (
    ALERTS,
    DASHBOARD,
    labels_of,
    metric_of,
    names_of,
    queries_of_dashboard,
    rules,
)

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
_SERVED = {m.By.DRAIN: "drain", m.By.FOLLOW: "compaction", m.By.BOTH: "both"}
# Prometheus' own labels.
_ADDED = {"job", "instance", "le"}


def test_the_page_has_each_metric_as_it_is_defined() -> None:
    """Name, type, labels, who serves it, and meaning, in the order of the definitions; then the alerts that ask for it."""
    rows = [
        [c.strip() for c in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith("| `lakep")
    ]
    alerts = {rule["alert"]: names_of(rule["expr"]) for rule in rules()}
    assert rows == [
        [
            f"`{metric.name}`",
            metric.kind.value,
            ", ".join(f"`{label}`" for label in metric.labels),
            _SERVED[metric.by],
            metric.meaning,
            ", ".join(f"`{alert}`" for alert, names in alerts.items() if metric.name in names),
        ]
        for metric in m.ALL
    ]


def test_the_page_says_what_to_do_about_each_alert() -> None:
    """No alert without a line, and no line without an alert."""
    section = PAGE.split("## Alerts and the dashboard")[1].split("\n## ")[0]
    assert set(re.findall(r"`(Lakeproof\w+)`", section)) == {rule["alert"] for rule in rules()}


@pytest.mark.parametrize("metric", m.ALL, ids=lambda metric: metric.name)
def test_a_name_has_its_unit_last(metric: m.Metric) -> None:
    """A counter ends with `_total`, and nothing else does; times are in seconds, sizes in bytes."""
    assert metric.name.endswith("_total") == (metric.kind is m.MetricType.COUNTER)
    assert bool(metric.buckets) == (metric.kind is m.MetricType.HISTOGRAM)
    assert not re.search(r"_(ms|s|mb|kb|minutes)(_total)?$", metric.name)


@pytest.mark.parametrize("query", [*(rule["expr"] for rule in rules()), *queries_of_dashboard()])
def test_a_query_names_metrics_and_labels_that_there_are(query: str) -> None:
    """It is parsed as PromQL, which refuses what Prometheus would."""
    for name in names_of(query):
        if name == "up" or name.startswith("process_"):
            continue
        metric = metric_of(name)
        assert labels_of(query, name) <= {*metric.labels, *_ADDED}, name


def test_the_alerts_and_the_dashboard_are_whole() -> None:
    """Every rule has a severity and both texts; every panel its own number and place; every metric of work is shown."""
    for rule in rules():
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert rule["annotations"].keys() == {"summary", "description"}
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) >= 15
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(places) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", str(panels))) <= {*variables, "__rate_interval"}


def test_prometheus_reads_the_alerts_at_the_place_where_compose_puts_them() -> None:
    """The targets are the addresses of the sample's configuration."""
    compose = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
    config = yaml.safe_load((ALERTS.parent / "prometheus.yaml").read_text(encoding="utf-8"))
    mounted = [volume.split(":") for volume in compose["services"]["prometheus"]["volumes"]]
    places = {inside: outside for outside, inside, *_ in mounted}
    assert [places[file] for file in config["rule_files"]] == ["./monitoring/alerts.yaml"]
    for service in ("prometheus", "grafana"):
        files = [v.split(":")[0] for v in compose["services"][service]["volumes"] if v.startswith("./")]
        assert all((ROOT / "docker" / file).is_file() for file in files)
    sample = yaml.safe_load((ROOT / "docker" / "sample" / "lakeproof.yaml").read_text(encoding="utf-8"))
    served = {sample["sources"]["shop"][part]["metrics"].rpartition(":")[2] for part in ("drain", "compaction")}
    targets = [t for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]]
    assert {target.rpartition(":")[2] for target in targets} == served
