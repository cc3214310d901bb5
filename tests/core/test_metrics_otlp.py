"""Metrics over OTLP: a receiver that reads protobuf gets what Prometheus would get, at intervals and at the end."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

from lakeproof.config.metrics import MetricsConfig
from lakeproof.events import Event, silent
from lakeproof.metrics import definitions as m
from lakeproof.metrics.otlp import OtlpSender
from lakeproof.metrics.samples import Registry, Sample
from tests.fix_drain import wait_until


class _Receiver:
    """A receiver of OpenTelemetry's; it answers `status`, and keeps the requests that it takes."""

    def __init__(self) -> None:
        self.status = 200
        self.paths: list[str] = []
        self.headers: dict[str, str] = {}
        self.requests: list[ExportMetricsServiceRequest] = []
        self.url = ""

    def newest(self) -> dict[str, Any]:
        (resource,) = self.requests[-1].resource_metrics
        (scope,) = resource.scope_metrics
        return {metric.name: metric for metric in scope.metrics}

    def resource(self) -> dict[str, str]:
        (resource,) = self.requests[-1].resource_metrics
        return {entry.key: entry.value.string_value for entry in resource.resource.attributes}


@contextmanager
def _receiver() -> Iterator[_Receiver]:
    received = _Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            body = gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body
            received.paths.append(self.path)
            received.headers = dict(self.headers)
            if received.status == 200:
                received.requests.append(ExportMetricsServiceRequest.FromString(body))
            answer = ExportMetricsServiceResponse().SerializeToString()
            self.send_response(received.status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  the base class's name for it
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def _registry() -> Registry:
    registry = Registry(
        lambda: [Sample(m.DURABLE_LSN, 7.0, {"source": "shop"}), Sample(m.CUT_AGE, 2.5, {"source": "shop"})]
    )
    flush = registry.histogram(m.FLUSH).labels("shop")
    for seconds in (0.007, 0.2, 0.2, 99.0):
        flush.observe(seconds)
    registry.counter(m.LANDED_CHANGES).labels("shop", "public.a", "insert").inc(41)
    return registry


def test_the_receiver_gets_what_prometheus_gets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters, gauges and histograms, by OpenTelemetry's own decoder; names, labels, meanings and units are ours."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20secret")
    registry = _registry()
    with _receiver() as receiver:
        config = MetricsConfig(otlp=receiver.url)
        with OtlpSender(config, "drain/shop", registry, silent):
            pass
        assert receiver.paths == ["/v1/metrics"]
        assert receiver.headers["authorization"] == "Bearer secret"
        metrics = receiver.newest()
        texts = registry.text().decode()
    assert receiver.resource() | {"service.version": ""} == {
        "service.name": "lakeproof",
        "service.instance.id": "drain/shop",
        "service.version": "",
        "deployment.environment": "test",
    }
    (lsn,) = metrics["lakeproof_durable_lsn"].gauge.data_points
    assert (lsn.as_double, [(a.key, a.value.string_value) for a in lsn.attributes]) == (7.0, [("source", "shop")])
    flush = metrics["lakeproof_flush_seconds"].histogram.data_points[0]
    assert (flush.count, flush.sum, list(flush.explicit_bounds)) == (4, 99.407, list(m.FLUSH.buckets))
    assert [(i, n) for i, n in enumerate(flush.bucket_counts) if n] == [(1, 1), (5, 2), (len(m.FLUSH.buckets), 1)]
    assert not flush.HasField("max")
    changes = metrics["lakeproof_landed_changes_total"].sum
    assert (changes.is_monotonic, changes.data_points[0].as_double) == (True, 41.0)
    assert metrics["lakeproof_cut_age_seconds"].unit == "s"
    assert metrics["lakeproof_cut_age_seconds"].description == m.CUT_AGE.meaning
    assert {name for name in metrics if f"\n# TYPE {name}" not in f"\n{texts}"} == set()


def test_a_receiver_that_refuses_ends_no_work_and_is_reported_once() -> None:
    """It is reported once more when it takes metrics again."""
    registry = _registry()
    events: list[Event] = []
    with _receiver() as receiver:
        receiver.status = 400
        with OtlpSender(MetricsConfig(otlp=receiver.url, otlp_interval_s=1), "drain/shop", registry, events.append):
            wait_until(lambda: len(receiver.paths) > 1)
            receiver.status = 200
            wait_until(lambda: bool(receiver.requests))
            wait_until(lambda: len(events) > 1)
    assert [(event.kind, event.fields["sent"]) for event in events] == [("metrics.otlp", False), ("metrics.otlp", True)]


def test_the_environment_says_where_if_the_configuration_leaves_it_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With OpenTelemetry's own variables."""
    registry = _registry()
    with _receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.url)
        with OtlpSender(MetricsConfig(otlp="environment"), "drain/shop", registry, silent):
            pass
        assert receiver.paths == ["/v1/metrics"]
        assert receiver.newest()


@pytest.mark.parametrize("otlp", ["localhost:4318", "grpc://host:4317", "https://user:pass@host", "env", ""])
def test_another_place_is_refused(otlp: str) -> None:
    """A user and a password are none of this file's."""
    with pytest.raises(ValueError, match="is no URL of a receiver"):
        MetricsConfig(otlp=otlp)
