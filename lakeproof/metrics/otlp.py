"""Sends the metrics of a process to OpenTelemetry over OTLP (HTTP, protobuf): the same names and values as Prometheus gets.

What the metrics are does not belong here (`definitions.py`), nor serving them (`server.py`). The work never waits for the
receiver: a thread of its own sends, and what goes wrong is an event. OpenTelemetry's own exporter sends, repeats and reads
its variables (`OTEL_EXPORTER_OTLP_HEADERS`, `…_CERTIFICATE` and so on).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.samples import Sample

from lakeproof import __version__
from lakeproof.config.metrics import BY_ENVIRONMENT, MetricsConfig
from lakeproof.events import Event, Report
from lakeproof.metrics.samples import Registry

_PATH = "/v1/metrics"
# One request may take so long; at the end the work waits so long for the last one.
_TIMEOUT_S = 10
_LAST_S = 5.0
_UNITS = {"_seconds": "s", "_bytes": "By"}
_CUMULATIVE = AggregationTemporality.CUMULATIVE


class OtlpSender:
    """Sends a registry at intervals while its block runs, and once at its end."""

    def __init__(self, config: MetricsConfig, instance: str, registry: Registry, report: Report) -> None:
        self._interval_s, self._report, self._registry = config.otlp_interval_s, report, registry
        self._exporter = OTLPMetricExporter(endpoint=_endpoint(config.otlp), timeout=_TIMEOUT_S)
        ours = {"service.name": "lakeproof", "service.instance.id": instance, "service.version": __version__}
        # What the environment says (OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES) comes first.
        self._resource = Resource(ours).merge(OTELResourceDetector().detect())
        self._began_ns = time.time_ns()
        self._ended = threading.Event()
        self._fails = False
        self._thread = threading.Thread(target=self._work, name="lakeproof otlp", daemon=True)

    def __enter__(self) -> OtlpSender:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join(_LAST_S)
        # Ends a request that is being repeated.
        self._exporter.shutdown()
        self._thread.join(_LAST_S)

    def _work(self) -> None:
        while not self._ended.wait(self._interval_s):
            self.send()
        self.send()

    def send(self) -> bool:
        """Send what the registry has now; False if that failed, or the receiver did not take it."""
        try:
            families = self._registry.prometheus.collect()
            result = self._exporter.export(metrics_data(families, self._resource, self._began_ns))
            fails = result is not MetricExportResult.SUCCESS
        except Exception:  # noqa: BLE001  metrics never end the work that they are about; the next interval tries again
            fails = True
        if fails != self._fails:
            self._fails = fails
            state = "the receiver does not take metrics; trying again" if fails else "the receiver takes metrics again"
            self._report(Event("metrics.otlp", f"OTLP: {state}", {"sent": not fails}))
        return not fails


def metrics_data(families: Iterable[Family], resource: Resource, began_ns: int) -> MetricsData:
    """Return Prometheus' families as OpenTelemetry's data, with the same names; counters count since `began_ns`."""
    now_ns = time.time_ns()
    metrics = [metric for family in families if (metric := _metric(family, began_ns, now_ns)) is not None]
    scope = ScopeMetrics(InstrumentationScope("lakeproof", __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _endpoint(otlp: str | None) -> str | None:
    """Return the URL of a receiver's metrics; None: the exporter reads OpenTelemetry's variables."""
    if otlp is None or otlp == BY_ENVIRONMENT:
        return None
    return otlp if otlp.endswith(_PATH) else otlp.rstrip("/") + _PATH


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric | None:
    if not family.samples:
        return None
    if family.type == "histogram":
        points = list(_histograms(family.samples, began_ns, now_ns))
        return Metric(family.name, family.documentation, _unit(family.name), Histogram(points, _CUMULATIVE))
    name = family.samples[0].name
    begins = began_ns if family.type == "counter" else 0
    numbers = [NumberDataPoint(sample.labels, begins, now_ns, sample.value) for sample in family.samples]
    data = Sum(numbers, _CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(numbers)
    return Metric(name, family.documentation, _unit(name), data)


def _unit(name: str) -> str:
    return next((unit for end, unit in _UNITS.items() if name.removesuffix("_total").endswith(end)), "")


def _histograms(samples: Iterable[Sample], began_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Give a point for each set of labels; Prometheus' buckets count all up to a limit, OpenTelemetry's each alone."""
    by_labels: dict[tuple[tuple[str, str], ...], dict[float, float]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        labels = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        if sample.name.endswith("_bucket"):
            by_labels.setdefault(labels, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[labels] = sample.value
    for labels, buckets in by_labels.items():
        yield _point(dict(labels), buckets, sums[labels], (began_ns, now_ns))


def _point(
    labels: Mapping[str, str], up_to: Mapping[float, float], total: float, times_ns: tuple[int, int]
) -> HistogramDataPoint:
    limits = sorted(up_to)
    counts = [int(up_to[limit] - (up_to[limits[i - 1]] if i else 0)) for i, limit in enumerate(limits)]
    # The last limit is infinite, and has none in OpenTelemetry. Least and greatest value are not known.
    return HistogramDataPoint(
        labels,
        *times_ns,
        count=int(up_to[limits[-1]]),
        sum=total,
        bucket_counts=counts,
        explicit_bounds=limits[:-1],
        min=None,  # type: ignore[arg-type]  # its encoder leaves out what is None
        max=None,  # type: ignore[arg-type]  # as above
    )
