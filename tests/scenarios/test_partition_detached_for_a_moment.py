"""A partition that is published under its own name is detached, changed and attached again between two readings.

While it was detached the publication did not have it, so nothing of the changes is in the stream, and its tables are in the
catalog as before. It is held until it is copied again.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from psycopg.sql import SQL
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.prove import prove
from lakeproof.errors import ConfigError
from lakeproof.events import Stop, silent
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained

pytestmark = pytest.mark.postgres
MOVED, STAYED = TableName("public", "moved"), TableName("public", "stayed")


def _no_spark() -> SparkSession:
    raise ConfigError("Spark", "none is here", "run this test with one")


@dataclass(frozen=True)
class Case:
    """The tables of a publication, and which partitions are held after one was detached, changed and attached again."""

    name: str
    publication: LiteralString
    held: frozenset[TableName]
    between: tuple[LiteralString, ...] = ()
    moved: LiteralString = "moved"


CASES = (
    Case("by_its_root", "FOR TABLE root", frozenset({MOVED})),
    Case(
        "below_another_partition",
        "FOR TABLE root",
        frozenset({MOVED}),
        (
            "ALTER TABLE root DETACH PARTITION moved",
            "CREATE TABLE middle PARTITION OF root FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id)",
            "ALTER TABLE middle ATTACH PARTITION moved FOR VALUES FROM (0) TO (10)",
        ),
        "middle",
    ),
    Case("by_a_line_of_its_own_too", "FOR TABLE root, moved", frozenset()),
    Case("with_everything", "FOR ALL TABLES", frozenset()),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_was_not_sent_meanwhile_is_not_called_equal(drained: Drained, case: Case) -> None:
    """All in one transaction. The partition beside it goes on, and so does one that was published all along."""
    database, config, spark = drained.database, drained.config(), SparkOnDemand(_no_spark)
    database.execute(
        "DROP PUBLICATION shop",
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE moved PARTITION OF root FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE stayed PARTITION OF root FOR VALUES FROM (10) TO (20)",
        "INSERT INTO root VALUES (1, 'a'), (2, 'b'), (11, 'c')",
        *case.between,
        SQL("CREATE PUBLICATION shop {}").format(SQL(case.publication)),
    )
    bootstrap(config, SOURCE)
    compact(config, SOURCE, spark, silent, Stop())
    with database.connect(autocommit=False) as conn:
        conn.execute(SQL("ALTER TABLE root DETACH PARTITION {}").format(SQL(case.moved)))
        conn.execute("DELETE FROM moved WHERE id = 1")
        conn.execute(SQL("ALTER TABLE root ATTACH PARTITION {} FOR VALUES FROM (0) TO (10)").format(SQL(case.moved)))
    database.execute("UPDATE root SET v = 'after'")
    proof = prove(config, SOURCE, None, spark)
    held = {table for table, result in proof.tables.items() if result.status == "held"}
    equal = {table for table, result in proof.tables.items() if result.status == "equal"}
    assert held == case.held
    assert equal == {MOVED, STAYED} - case.held
    cut = newest_cut(drained.source_lake)
    assert cut is not None
    assert {(why.cause, why.way_out) for why in cut.held.values()} <= {(HeldCause.CATALOG, WayOut.SNAPSHOT)}
