"""Two tables exchange their names: both are held, since rows came under the wrong names, and a copy is due for both.

The lake knows tables by their names, and each name is still published: nobody has to publish it first.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.errors import ConfigError
from lakeproof.events import Stop, silent
from lakeproof.lake.records.held import Held, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.state.due_copies import recopy
from tests.support.ingest.fix_drain import SOURCE, Drained, wait_until

pytestmark = pytest.mark.postgres
A, B = TableName("public", "a"), TableName("public", "b")


def _no_spark() -> SparkSession:
    raise ConfigError("Spark", "none is here", "run this test with one")


def test_both_are_due_for_a_copy(drained: Drained) -> None:
    """A third table, renamed to a name that nobody has, is not: what the lake has of it is kept."""
    database, config = drained.database, drained.config()
    database.execute(*(f"CREATE TABLE {name} (id int PRIMARY KEY, {name}1 text)" for name in "abc"))
    # A table without a row would enter under its new name by itself.
    database.execute("INSERT INTO c VALUES (1, 'of c')")
    bootstrap(config, SOURCE)
    compact(config, SOURCE, SparkOnDemand(_no_spark), silent, Stop())
    database.execute(
        "ALTER TABLE a RENAME TO x",
        "ALTER TABLE b RENAME TO a",
        "ALTER TABLE x RENAME TO b",
        "ALTER TABLE c RENAME TO d",
        "INSERT INTO a VALUES (1, 'of b')",
        "INSERT INTO b VALUES (1, 'of a')",
    )

    def held() -> Mapping[TableName, Held]:
        drained.drain()
        compact(config, SOURCE, SparkOnDemand(_no_spark), silent, Stop())
        # A reading of the catalog counts from where the server's log was then, which may not have been flushed.
        database.flush_wal()
        cut = newest_cut(drained.source_lake)
        assert cut is not None
        return cut.held

    wait_until(lambda: held().keys() == {A, B, TableName("public", "c")})
    assert {h.way_out for h in held().values()} == {WayOut.PUBLISH_THEN_SNAPSHOT}
    due = recopy(config, SOURCE, datetime.now(timezone.utc)).due
    assert due.keys() == {A, B, TableName("public", "d")}
