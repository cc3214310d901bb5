"""A place between two cuts, in the cycle in which a copy of a healthy table entered: exact, or refused.

Seen once: rows of two schemas were unread when the copy came, so history got the correction alone, and `as_of` gave the rows
of before at every place between.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.lake.read.as_of import as_of
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.fix_lake import into_the_lake
from tests.fix_postgres import Database

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
T = TableName("public", "t")


def test_what_history_was_not_given_is_refused(database: Database, tmp_path: Path, spark: SparkSession) -> None:
    """Positions that history covers are exact, through a copy too."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, 'a' FROM generate_series(1, 5) i",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )

    def known() -> tuple[Lsn, list[tuple[int, str]]]:
        """The source's position, and its rows there."""
        return database.end_of_wal(), [
            (int(row[0]), str(row[1])) for row in database.rows("SELECT id, v FROM t ORDER BY 1")
        ]

    def at(position: Lsn) -> list[tuple[int, str]]:
        return sorted((row["id"], row["v"]) for row in as_of(spark, config, position).table(T).collect())

    bootstrap(config, "shop")
    into_the_lake(config, spark)
    with database.connect() as conn, conn.transaction():
        conn.execute("UPDATE t SET v = 'b' WHERE id = 1")
        conn.execute("ALTER TABLE t ADD w int")
        conn.execute("UPDATE t SET v = 'b' WHERE id = 2")
    places = [known()]
    database.execute("UPDATE t SET v = 'c' WHERE id = 3")
    places.append(known())
    drain(config, "shop", Until.caught_up())
    bootstrap(config, "shop", [T])
    database.execute("DELETE FROM t WHERE id = 4")
    into_the_lake(config, spark)
    for position, rows in places:
        try:
            assert at(position) == rows
        except LakeError as error:
            assert "is not in history" in str(error) or "its schema changed" in str(error)  # noqa: PT017  either is right
    end, rows = known()
    into_the_lake(config, spark)
    assert at(end) == rows

    database.execute("UPDATE t SET v = 'm' WHERE id = 1")
    places = [known()]
    bootstrap(config, "shop", [T])
    database.execute("UPDATE t SET v = 'n' WHERE id = 1")
    places.append(known())
    database.execute("UPDATE t SET v = 'o' WHERE id = 1")
    into_the_lake(config, spark)
    for position, rows in places:
        assert at(position) == rows
