"""A registry of metrics in Prometheus' form: counters that are added to, and state that is asked for at each scrape.

What is outside of the process is read not more often than every few seconds, and never for longer than a few. A server or a
store may hang: so a thread reads, and a scrape waits for it for `WAIT_S` seconds. Then it has what was read before, and its
age is a metric, too. The number of tables with figures of their own is bounded: a source may have tens of thousands.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from lakeproof.metrics import definitions as m
from lakeproof.metrics.definitions import Metric, MetricType
from lakeproof.names import TableName

# Each counter would have a second time series, for when it began; nothing here asks for that.
disable_created_metrics()  # type: ignore[no-untyped-call]  # the client has types, but not here

T = TypeVar("T")

# A scrape finds values that are at most this old, if they can be read in time.
FRESH_S = 5.0
# The longest wait of a scrape for one reading; Prometheus gives up after 10 s by default.
WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a metric at one moment."""

    metric: Metric
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


State = Callable[[], Iterable[Sample]]


class Registry:
    """The metrics of one process or command; each has its own, so that several in one process do not mix."""

    def __init__(self, *states: State) -> None:
        self.prometheus = CollectorRegistry(auto_describe=False)
        self.prometheus.register(_States(states))

    def add_process(self) -> None:
        """Add what the system says of this process: memory, processor time, open files."""
        ProcessCollector(registry=self.prometheus)

    def counter(self, metric: Metric) -> Counter:
        return Counter(metric.name.removesuffix("_total"), metric.meaning, metric.labels, registry=self.prometheus)

    def histogram(self, metric: Metric) -> Histogram:
        return Histogram(metric.name, metric.meaning, metric.labels, registry=self.prometheus, buckets=metric.buckets)

    def text(self) -> bytes:
        """Return all of it in the text format, version 0.0.4."""
        return generate_latest(self.prometheus)


class _States(Collector):
    """Asks each state for its samples, and groups them by metric."""

    def __init__(self, states: Iterable[State]) -> None:
        self._states = tuple(states)

    def collect(self) -> Iterator[Family]:
        families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for state in self._states:
            for sample in state():
                metric = sample.metric
                family = families.get(metric.name)
                if family is None:
                    make = CounterMetricFamily if metric.kind is MetricType.COUNTER else GaugeMetricFamily
                    family = families[metric.name] = make(metric.name, metric.meaning, labels=metric.labels)
                family.add_metric([sample.labels[name] for name in metric.labels], sample.value)
        yield from families.values()


# The label of all other tables. No table has it: a table's has a dot.
OTHER = "other"


class TableLabels:
    """The labels of the first `tables_max` tables that change, over all sources of a process; all others share one."""

    def __init__(self, tables_max: int) -> None:
        self._tables_max = tables_max
        self._labels: dict[tuple[str, TableName], str] = {}
        self._lock = threading.Lock()

    def label(self, source: str, table: TableName) -> str:
        with self._lock:
            existing = self._labels.get((source, table))
            if existing is not None:
                return existing
            if len(self._labels) >= self._tables_max:
                return OTHER
            return self._labels.setdefault((source, table), str(table))


class PolledValue(Generic[T]):
    """The newest value that `read` has returned; for any number of threads."""

    def __init__(
        self, name: str, read: Callable[[], T], clock: Callable[[], float] = time.monotonic, wait_s: float = WAIT_S
    ) -> None:
        self._name, self._read, self._clock, self._wait_s = name, read, clock, wait_s
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._working = False
        self._tried_s: float | None = None
        self._value: tuple[T, float] | None = None
        self.errors = 0

    def value(self) -> tuple[T, float] | None:
        """Return the newest value and its age in seconds, None if there is none; never raises."""
        with self._lock:
            due = self._tried_s is None or self._clock() - self._tried_s >= FRESH_S
            if due and not self._working:
                self._working, self._tried_s = True, self._clock()
                self._done.clear()
                threading.Thread(target=self._work, name=f"lakeproof {self._name}", daemon=True).start()
        if not self._done.wait(self._wait_s):
            self.errors += 1
        newest = self._value
        return None if newest is None else (newest[0], self._clock() - newest[1])

    def samples(self, of: str, labels: Mapping[str, str], state: Callable[[T], Iterable[Sample]]) -> Iterator[Sample]:
        """Yield the samples of the newest value, beside its age and the number of errors; `of` says what was read."""
        newest = self.value()
        yield Sample(m.STATE_ERRORS, self.errors, {**labels, "of": of})
        if newest is not None:
            yield Sample(m.STATE_AGE, newest[1], {**labels, "of": of})
            yield from state(newest[0])

    def _work(self) -> None:
        began_s = self._clock()
        try:
            self._value = self._read(), began_s
        except Exception:  # noqa: BLE001  whatever it is, a scrape goes on without the value, and counts it
            self.errors += 1
        finally:
            self._working = False
            self._done.set()
