"""lakeproof: PostgreSQL to Delta Lake over pgoutput, provably equal to the source at an LSN.

`lakeproof.open(spark, lake, at=…)` reads a lake at a cut or at its landing's end, `read(lake, at=…)` does so without Spark,
`as_of` reads it exactly at a position or time, `register` creates SQL views at a cut. `changes` and `view_changes` return
the changes between cuts, `read_changes` and `read_view_changes` do so without Spark, `transactions` returns those that have
landed, and `subscribe` is a stream of any of them.
`session(config)` returns a Spark session that can read all of these. Importing the package does not import Spark, so nothing
that needs Spark belongs in this file.

The rooms, each of which imports only the rooms below it (`|`: neither imports the other; pyproject.toml has the contract):

    cli/                    arguments in, an exit status out
    commands/               one function per command
    metrics/                what Prometheus is shown of a command
    follow/                 compaction that goes on, with views and proofs beside it
    expectations/ | publication/    Great Expectations of tables | what is published
    state/                  how everything stands, read once
    proof/                  compares source and lake
    compaction/             cycles, up to the landing's end, and what is then too much
    views/                  SQL over current tables, kept up to date
    sql_catalog | descriptions      what others are shown of the lake: names | comments and types
    lake/                   history and current tables: planned, written, read
    drain/ | snapshot/      the two ways in: changes from a slot, and copies
    continuity/             is this still the server that we have read?
    postgres/ | landing/    the server | landed changes, and their chain of manifests
    pgoutput/               decodes the replication protocol
    values/ | storage/      values of columns | files, paths and locks
    catalog/ | config/      the source's catalog as values | lakeproof.yaml
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeproof.lake.read.arrow.changes import read_changes, read_view_changes
    from lakeproof.lake.read.arrow.open import read_lake as read
    from lakeproof.lake.read.arrow.transactions import transactions
    from lakeproof.lake.read.spark.as_of import as_of
    from lakeproof.lake.read.spark.changes import changes, view_changes
    from lakeproof.lake.read.spark.open import open_lake as open  # noqa: A004  its public name
    from lakeproof.lake.read.spark.open import register
    from lakeproof.lake.read.spark.subscribe import subscribe
    from lakeproof.lake.spark.session import session

__version__ = "0.1.0"
__all__ = [
    "__version__",
    "as_of",
    "changes",
    "open",
    "read",
    "read_changes",
    "read_view_changes",
    "register",
    "session",
    "subscribe",
    "transactions",
    "view_changes",
]

_PUBLIC = {
    "as_of": ("lakeproof.lake.read.spark.as_of", "as_of"),
    "changes": ("lakeproof.lake.read.spark.changes", "changes"),
    "open": ("lakeproof.lake.read.spark.open", "open_lake"),
    "read": ("lakeproof.lake.read.arrow.open", "read_lake"),
    "read_changes": ("lakeproof.lake.read.arrow.changes", "read_changes"),
    "read_view_changes": ("lakeproof.lake.read.arrow.changes", "read_view_changes"),
    "register": ("lakeproof.lake.read.spark.open", "register"),
    "session": ("lakeproof.lake.spark.session", "session"),
    "subscribe": ("lakeproof.lake.read.spark.subscribe", "subscribe"),
    "view_changes": ("lakeproof.lake.read.spark.changes", "view_changes"),
    "transactions": ("lakeproof.lake.read.arrow.transactions", "transactions"),
}


def __getattr__(name: str) -> Any:
    # Only a caller that reads a lake pays for importing Spark.
    if name in _PUBLIC:
        module, attribute = _PUBLIC[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
