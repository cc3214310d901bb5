"""Every metric: its name, type, labels and meaning. docs/metrics.md has this as a table, and a test compares them.

A name ends with its unit, as Prometheus' conventions have it; counters with `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricType(Enum):
    """The types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class By(Enum):
    """The processes that serve a metric: a drain, or a compaction that goes on."""

    DRAIN = "drain"
    FOLLOW = "compaction"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric; `buckets` are a histogram's upper limits, in seconds."""

    name: str
    kind: MetricType
    by: By
    labels: tuple[str, ...]
    meaning: str
    buckets: tuple[float, ...] = ()


_SHORT_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG_S = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
_SOURCE = ("source",)


def _counter(name: str, by: By, labels: tuple[str, ...], meaning: str) -> Metric:
    return Metric(f"lakeproof_{name}_total", MetricType.COUNTER, by, labels, meaning)


def _gauge(name: str, by: By, meaning: str, labels: tuple[str, ...] = _SOURCE) -> Metric:
    return Metric(f"lakeproof_{name}", MetricType.GAUGE, by, labels, meaning)


def _seconds(name: str, by: By, buckets: tuple[float, ...], meaning: str) -> Metric:
    return Metric(f"lakeproof_{name}_seconds", MetricType.HISTOGRAM, by, _SOURCE, meaning, buckets)


# The process.
INFO = _gauge("build_info", By.BOTH, "1; the labels say what runs", ("version", "command"))
READY = _gauge("ready", By.BOTH, "1 if `/readyz` says so", ())
STATE_AGE = _gauge("state_age_seconds", By.BOTH, "Age of what was read of a slot or a lake", ("source", "of"))
STATE_ERRORS = _counter("state_errors", By.BOTH, ("source", "of"), "Readings of these that failed or took too long")

# What the drain does.
LANDED_CHANGES = _counter("landed_changes", By.DRAIN, ("source", "table", "kind"), "Changes that became durable")
LANDED_BYTES = _counter("landed_bytes", By.DRAIN, ("source", "table"), "Bytes of their files")
LANDED_TRANSACTIONS = _counter("landed_transactions", By.DRAIN, _SOURCE, "Transactions that became durable")
RECEIVED_BYTES = _counter("received_bytes", By.DRAIN, _SOURCE, "Bytes of messages of the stream")
SPILLED_BYTES = _counter("spilled_bytes", By.DRAIN, _SOURCE, "Bytes of transactions that waited on disk")
RECONNECTS = _counter("reconnects", By.DRAIN, _SOURCE, "Connections that were lost or could not be made")
FLUSH = _seconds("flush", By.DRAIN, _SHORT_S, "Time to write and sync the last part of a segment")
COMMIT_TO_DURABLE = _seconds(
    "commit_to_durable", By.DRAIN, _LONG_S, "Age of a segment's oldest commit when it became durable"
)

# The drain's present state.
CONNECTED = _gauge("connected", By.DRAIN, "1 if the drain has the slot")
RECEIVED_LSN = _gauge("received_lsn", By.DRAIN, "Position up to which everything has come")
DURABLE_LAG_SECONDS = _gauge("durable_lag_seconds", By.DRAIN, "Every commit that is older is durable")
DURABLE_LAG_BYTES = _gauge("durable_lag_bytes", By.DRAIN, "Log that the drain knows of and that is not durable")

# The slot, as the server sees it.
WAL_LSN = _gauge("wal_lsn", By.DRAIN, "The server's end of log")
CONFIRMED_LSN = _gauge("confirmed_lsn", By.DRAIN, "Position that the slot has confirmed")
SLOT_LAG = _gauge("slot_lag_bytes", By.DRAIN, "Log between the confirmed position and its end, of the whole cluster")
SLOT_RETAINED = _gauge("slot_retained_bytes", By.DRAIN, "Log that the slot keeps on the source's disk")
SLOT_SECONDS_LEFT = _gauge(
    "slot_seconds_left",
    By.DRAIN,
    "Time until the server would invalidate the slot, at the present rate; absent without a limit",
)
SLOT_LEVEL = _gauge(
    "slot_level",
    By.DRAIN,
    "0 if the slot is well, 1 for a warning, 2 for an error (the section `health`), or if it is gone",
)

# The lake.
DURABLE_LSN = _gauge("durable_lsn", By.BOTH, "End of the landing")
APPLIED_LSN = _gauge("applied_lsn", By.BOTH, "Position of the newest cut")
APPLIED_LAG_SECONDS = _gauge(
    "applied_lag_seconds", By.BOTH, "Age of the oldest landed commit that is in no cut; 0 if there is none"
)
APPLIED_LAG_BYTES = _gauge("applied_lag_bytes", By.BOTH, "Log between the newest cut and the landing's end")
WAITING_ROWS = _gauge("waiting_rows", By.BOTH, "Landed rows that are in no cut")
WAITING_BYTES = _gauge("waiting_bytes", By.BOTH, "Bytes of their files")
CUT_NUMBER = _gauge("cut_number", By.BOTH, "Number of the newest cut")
CUT_AGE = _gauge("cut_age_seconds", By.BOTH, "Age of the newest cut")
HELD_TABLES = _gauge("held_tables", By.BOTH, "Tables that stand at an earlier position, and that somebody waits for")
ABSENT_TABLES = _gauge("absent_tables", By.BOTH, "Published tables that are in no lake")
UNPROVED_TABLES = _gauge(
    "unproved_tables", By.BOTH, "Tables that no proof has compared with the source, ever or since a column was widened"
)
MISSING_DAYS = _gauge("missing_days", By.BOTH, "Days of tables that `daily` asks for and the lake does not have")
OVERWRITTEN_VIEWS = _gauge(
    "overwritten_views", By.BOTH, "Views that read the source and that somebody else has written"
)
PAUSED_TABLES = _gauge("paused_tables", By.BOTH, "Tables that a person has paused")
PROOF_AGE = _gauge("proof_age_seconds", By.BOTH, "Age of the last proof of any table")
PROOF_OLDEST_AGE = _gauge("proof_oldest_age_seconds", By.BOTH, "Age of the table's proof that is longest ago")
PROVEN_AGE = _gauge(
    "proven_age_seconds",
    By.BOTH,
    "Time since a table was equal to the source last, and the kind of that proof: `whole`, or `changed`",
    ("source", "table", "kind"),
)
PROVEN_LSN = _gauge("proven_lsn", By.BOTH, "Position up to which a table is proven equal", ("source", "table", "kind"))
PROOF_EQUAL = _gauge("proof_equal", By.BOTH, "1 if no table differed when it was last compared, else 0")
PROOF_TABLES = _gauge("proof_tables", By.BOTH, "Tables by the result of their last proof", ("source", "status"))

# What the compaction does.
LEASE_HELD = _gauge(
    "lease_taken", By.FOLLOW, "1 if this process holds the leases, 0 if it waits for its turn", ("name",)
)
APPLIED_CHANGES = _counter("applied_changes", By.FOLLOW, ("source", "table"), "Changes of the stream that are in a cut")
APPLIED_ROWS = _counter(
    "applied_rows", By.FOLLOW, ("source", "table", "kind"), "Rows of current that were inserted or deleted for them"
)
CYCLE = _seconds("cycle", By.FOLLOW, _LONG_S, "Duration of a cycle, from its intent to its cut")
COMMIT_TO_CUT = _seconds("commit_to_cut", By.FOLLOW, _LONG_S, "Age of a cut's newest commit when the cut was made")
RETRIES = _counter("retries", By.FOLLOW, ("name",), "Turns that ended with an error and were tried again")
VIEW_ROWS = _counter("view_rows", By.FOLLOW, ("view", "kind"), "Rows of views that were inserted or retracted")

ALL: tuple[Metric, ...] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))
