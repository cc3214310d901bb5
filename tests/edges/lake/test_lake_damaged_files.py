"""A file that is not what was made durable is refused before a row of it is in the lake.

A flipped bit is not always an error to a Parquet reader: it can be another value, or NULL.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from psycopg.sql import SQL, Identifier
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.records.held import WayOut
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.landing.chain import Chain
from lakeproof.landing.segments.reader import slices
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.run import ProofRequest
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import TABLES_ALONE

pytestmark = [pytest.mark.postgres, pytest.mark.slow]


INSERT, UPDATE = "INSERT INTO items VALUES (2, 'streamed')", "UPDATE items SET v = 'streamed'"


@pytest.mark.parametrize(
    ("room", "message", "change", "rows"),
    [
        ("snapshots", "checksum is not the one", INSERT, {(1, "copied"), (2, "streamed")}),
        ("snapshots", "checksum is not the one", UPDATE, {(1, "streamed")}),
        ("landing", "its manifest says", INSERT, {(1, "copied"), (2, "streamed")}),
    ],
)
def test_a_damaged_file_holds_its_table_and_another_copy_brings_it(  # noqa: PLR0917  its parameters
    database: Database,
    no_spark: SparkOnDemand,
    tmp_path: Path,
    room: str,
    message: str,
    change: LiteralString,
    rows: set[tuple[int, str]],
) -> None:
    """A flipped bit, a file cut short: the reason names the file, and the source's other table goes on.

    A copy's file is verified when it is linked; if a change touches its rows, before its keys are read.
    """
    for name in ("items", "others"):
        database.execute(SQL("CREATE TABLE {} (id int PRIMARY KEY, v text)").format(Identifier(name)))
        database.execute(SQL("INSERT INTO {} VALUES (1, 'copied')").format(Identifier(name)))
    database.execute("CREATE PUBLICATION pub FOR TABLE items, others")
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )
    bootstrap(config, "shop")
    database.execute(change, "INSERT INTO others VALUES (2, 'streamed')")
    drain(config, "shop", Until.caught_up())
    lake, table = SourceLake.open(config.lake, "shop"), TableName("public", "items")
    chain = Chain.open(lake, Incarnation(1))
    landed = [piece.url for piece in slices(chain, Lsn.ZERO, chain.end, table)]
    oid = database.value("SELECT 'items'::regclass::oid::bigint")
    copied = [str(file) for file in (tmp_path / "lake" / "shop" / "snapshots").rglob(f"*-{oid}-*.parquet")]
    path = Path((landed if room == "landing" else copied)[-1])
    whole, position = path.read_bytes(), path.stat().st_size // 2
    flipped = whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
    path.write_bytes(flipped if room == "snapshots" else whole[:-1])
    (done,) = compact(config, "shop", no_spark, silent, Stop())
    (held,) = done.held.values()
    assert str(path) in held.reason
    assert message in held.reason
    assert held.way_out is WayOut.SNAPSHOT
    assert _rows(config, "others") == {(1, "copied"), (2, "streamed")}

    bootstrap(config, "shop", [table])
    drain(config, "shop", Until.caught_up())
    (*_, done) = compact(config, "shop", no_spark, silent, Stop())
    assert not done.held
    assert prove(config, "shop", None, no_spark, request=TABLES_ALONE).equal
    assert _rows(config, "items") == rows


def test_own_changes_before_a_copy_are_verified_too(
    database: Database, no_spark: SparkOnDemand, tmp_path: Path
) -> None:
    """The copy corrects current alone, so a flipped bit would be in history for good; the copy enters without them."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY, v text)", "CREATE PUBLICATION pub FOR TABLE items")
    database.execute("INSERT INTO items VALUES (1, 'copied')")
    config = Config(
        path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source(buckets=16)}
    )
    bootstrap(config, "shop")
    compact(config, "shop", no_spark, silent, Stop())
    database.execute("INSERT INTO items SELECT n, repeat(md5(n::text), 9) FROM generate_series(2, 60) n")
    drain(config, "shop", Until.caught_up())
    lake, table = SourceLake.open(config.lake, "shop"), TableName("public", "items")
    chain = Chain.open(lake, Incarnation(1))
    [landed] = [piece.url for piece in slices(chain, Lsn.ZERO, chain.end, table)]
    whole = Path(landed).read_bytes()
    Path(landed).write_bytes(whole[:600] + bytes([whole[600] ^ 1]) + whole[601:])

    bootstrap(config, "shop", [table])
    drain(config, "shop", Until.caught_up())
    done = compact(config, "shop", no_spark, silent, Stop())
    reasons = [held.reason for cut in done for held in cut.held.values()]
    assert any("its checksum is not the one its manifest says" in reason for reason in reasons), reasons
    if done[-1].held:
        bootstrap(config, "shop", [table])
        drain(config, "shop", Until.caught_up())
        compact(config, "shop", no_spark, silent, Stop())
    proof = prove(config, "shop", None, no_spark, request=ProofRequest(history=True))
    assert proof.equal
    assert len(_rows(config, "items")) == 60


def _rows(config: Config, table: str) -> set[tuple[int, str]]:
    rows = read_lake(config).table("shop", f"public.{table}").arrow().to_pylist()
    return {(row["id"], row["v"]) for row in rows}
