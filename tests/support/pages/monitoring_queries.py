"""The queries of docker/monitoring, parsed: the metrics and labels that they name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import promql_parser
import yaml

from lakeproof.metrics import definitions as m

FOLDER = Path(__file__).parents[3] / "docker" / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana" / "lakeproof.json").read_text(encoding="utf-8"))
_PARTS = ("_bucket", "_sum", "_count")


def rules() -> list[dict[str, Any]]:
    """Return the alert rules."""
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def queries_of_dashboard() -> list[str]:
    """Return the queries of all panels, with an interval in place of Grafana's variable."""
    targets = [target for panel in DASHBOARD["panels"] for target in panel["targets"]]
    return [target["expr"].replace("$__rate_interval", "5m") for target in targets]


def metric_of(name: str) -> m.Metric:
    """Return the metric of a time series' name; raises KeyError if there is none."""
    series = {metric.name: metric for metric in m.ALL if metric.kind is not m.MetricType.HISTOGRAM}
    series |= {f"{metric.name}{part}": metric for metric in m.ALL if metric.buckets for part in _PARTS}
    return series[name]


def names_of(query: str) -> set[str]:
    """Return the names of the time series that a query asks for; raises ValueError if it is no PromQL."""
    selectors = [node for node in _nodes(query) if isinstance(node, promql_parser.VectorSelector)]
    return {str(node.name) for node in selectors}


def labels_of(query: str, name: str) -> set[str]:
    """Return the labels by which a query selects or groups the series `name`."""
    labels: set[str] = set()
    for node in _nodes(query):
        if isinstance(node, promql_parser.VectorSelector) and node.name == name:
            labels |= {matcher.name for matcher in node.matchers.matchers}
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            labels |= set(node.modifier.labels)
    return labels


def _nodes(query: str) -> list[Any]:
    nodes: list[Any] = []
    promql_parser.walk(promql_parser.parse(query), nodes.append)
    return nodes
