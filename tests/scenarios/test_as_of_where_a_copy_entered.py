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
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.config.model import Config
from lakeproof.config.section.upkeep import RetentionConfig
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.events import silent
from lakeproof.lake.read.spark.as_of import as_of
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from tests.support.lake.maintain_steps import MUCH_LATER
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]
T = TableName("public", "t")


@pytest.mark.full
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
            assert "not every change before" in str(error) or "its schema changed" in str(error)  # noqa: PT017  either is right
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


@pytest.mark.full
@pytest.mark.parametrize(("cuts_kept", "changed"), [(True, False), (False, True)])
def test_what_was_not_published_is_refused(
    database: Database, tmp_path: Path, spark: SparkSession, *, cuts_kept: bool, changed: bool
) -> None:
    """A table leaves its publication and comes back; what it had meanwhile, a copy that corrects nothing does not tell.

    Seen once: where the cycle of the copy had no change of the table, the rows of before were given.
    """
    config = _two_tables(database, tmp_path, spark)
    database.execute("INSERT INTO other VALUES (0)")
    into_the_lake(config, spark)
    database.execute("ALTER PUBLICATION pub DROP TABLE t", "UPDATE t SET v = 'x' WHERE id = 3")
    unknown = database.end_of_wal()
    database.execute(
        "INSERT INTO other VALUES (1)",
        "UPDATE t SET v = 'a' WHERE id = 3",
        "ALTER PUBLICATION pub ADD TABLE t",
    )
    drain(config, "shop", Until.caught_up())
    bootstrap(config, "shop", [T])
    into_the_lake(config, spark)
    if changed:
        database.execute("UPDATE t SET v = 'z' WHERE id = 4")
        into_the_lake(config, spark)
    if not cuts_kept:
        _keep_the_newest_cut(config, spark)
    with pytest.raises(LakeError, match="not every change before"):
        as_of(spark, config, unknown).table(T)
    # Past the drain's position, so that the lake can be asked for it.
    end, expected = database.end_of_wal(), [tuple(row) for row in database.rows("SELECT id, v FROM t ORDER BY 1")]
    database.execute("INSERT INTO other VALUES (2)")
    into_the_lake(config, spark)
    assert sorted(tuple(row) for row in as_of(spark, config, end).table(T).collect()) == expected


@pytest.mark.full
def test_a_table_that_the_oldest_cut_holds_is_read_up_to_there(
    database: Database, tmp_path: Path, spark: SparkSession
) -> None:
    """Seen once: it ended in an error of ours, although history has all of its rows."""
    config = _two_tables(database, tmp_path, spark)
    first, rows = database.end_of_wal(), [tuple(row) for row in database.rows("SELECT id, v FROM t ORDER BY 1")]
    database.execute("UPDATE t SET v = 'b' WHERE id = 1")
    changed = [tuple(row) for row in database.rows("SELECT id, v FROM t ORDER BY 1")]
    into_the_lake(config, spark)
    database.execute("ALTER PUBLICATION pub DROP TABLE t", "INSERT INTO other VALUES (1)")
    drain(config, "shop", Until.caught_up())
    for number in (2, 3):
        held_at = database.end_of_wal()
        database.execute(f"INSERT INTO other VALUES ({number})")  # noqa: S608  the test's own
        into_the_lake(config, spark)
    _keep_the_newest_cut(config, spark)
    for place, expected in ((first, rows), (held_at, changed)):
        lake = as_of(spark, config, place)
        assert T in lake.held
        assert sorted(tuple(row) for row in lake.table(T).collect()) == expected


def _two_tables(database: Database, tmp_path: Path, spark: SparkSession) -> Config:
    """The configuration of a source with `t` and another table, which are in the lake."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, 'a' FROM generate_series(1, 5) i",
        "CREATE PUBLICATION pub FOR TABLE t, other",
    )
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )
    bootstrap(config, "shop")
    into_the_lake(config, spark)
    return config


def _keep_the_newest_cut(config: Config, spark: SparkSession) -> None:
    kept = RetentionConfig.model_validate({"cuts_s": 0, "landing_s": 10**9})
    source = config.sources["shop"].model_copy(update={"retention": kept})
    later = MaintenanceRequest(now=MUCH_LATER)
    maintain(config.model_copy(update={"sources": {"shop": source}}), "shop", spark, silent, later)
