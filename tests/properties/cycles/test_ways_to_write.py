"""All ways to write a table do the same: random batches against a dictionary, in all surroundings.

By links most images of a batch lie in landed files. What can't be linked is named: a table that is never linked would show
nothing.

The batches and the dictionary are in `apply_model.py`. `make test` takes a few batches of one kind of table,
`make test-all` many of all.
"""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.errors import LakeError, TransientError
from lakeproof.failpoints import Armed, watched
from lakeproof.lake.delta import apply as spark_commit
from lakeproof.lake.delta.apply import CommitRequest, apply_change
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.cleaned import clean_log
from lakeproof.lake.delta.log.commits import ForeignCommitError, newest_version
from lakeproof.lake.delta.log.protocol import NOT_PORTABLE, TableSpec, reader_features
from lakeproof.lake.rows.change import DriftedError, NetChange, Removed
from tests.properties.cycles.apply_model import COMPOSITE, KINDS, SEED, Batch, Kind, Table, V, Way

pytestmark = pytest.mark.spark
FEW, MANY, LINK = Way.FEW, Way.MANY, Way.LINK
# How a batch is written, and whether the table is portable: then files are rewritten.
WAYS = [
    pytest.param(FEW, False, id="few keys", marks=pytest.mark.full),
    pytest.param(MANY, False, id="many keys"),
    pytest.param(FEW, True, id="portable", marks=pytest.mark.full),
    pytest.param(LINK, False, id="links"),
    pytest.param(LINK, True, id="links into a portable table", marks=pytest.mark.full),
]
# Why a batch is not linked.
TRUNCATED = "the change truncates the table"
REWRITTEN = "the table is written without deletion vectors"
FULL = [pytest.param(kind, 6, id=kind.name, marks=pytest.mark.full) for kind in KINDS]


@pytest.mark.parametrize(("way", "portable"), WAYS)
@pytest.mark.parametrize(("kind", "batches"), [pytest.param(COMPOSITE, 3, id="some"), *FULL])
def test_a_way_does_what_the_contract_says(  # noqa: PLR0917  the table, and what it is written with
    spark: SparkSession, tmp_path: Path, kind: Kind, batches: int, way: Way, portable: bool
) -> None:
    """Counts and rows after every batch; replays, older versions, OPTIMIZE and VACUUM between and afterwards."""
    rng = random.Random(f"{SEED}/{kind.name}")
    if portable or way is LINK:
        # A blank takes column mapping.
        kind = replace(kind, columns=tuple((name.replace(" ", "_"), of) for name, of in kind.columns))
    table = Table(spark.newSession(), str(tmp_path / "table"), kind, way, rng, portable=portable)
    try:
        keys = {table.key() for _ in range(30 if kind.files < 50 else 200)}
        table.create([table.row(key) for key in keys])
        for number in range(batches):
            table.send(table.batch(rng.choice([1, 5, 20])))
            table.check()
            if number % 10 == 2:
                _replay(table)
                table.session.sql(f"OPTIMIZE delta.`{table.path}`")
        new = next(key for key in iter(table.key, ()) if key not in table.rows)
        table.send(Batch([], [table.row(new)], inserts_only=way is LINK))
        table.send(Batch([key := table.key()], [table.row(key)]))
        table.check(rng.choice(sorted(table.states)))
        if batches > 3:
            for version in rng.sample(sorted(table.states), 3):
                table.check(version)
            _vacuumed(table)
    except AssertionError as error:
        raise AssertionError(f"seed {SEED}: {error}") from error
    if way is LINK:
        _check_links(table)
    assert NOT_PORTABLE.isdisjoint(reader_features(table.path, table.version)) is portable


def _check_links(table: Table) -> None:
    """Every batch was linked that can be: all but those that truncate, or delete from a portable table."""
    assert table.linked >= 2, f"seed {SEED}"
    reasons = {TRUNCATED, REWRITTEN} if table.portable else {TRUNCATED}
    assert set(table.not_linked) <= reasons, f"{table.not_linked}, seed {SEED}"


def _replay(table: Table) -> None:
    """Commit the same number again on the same version: it is refused, since Delta would skip it in silence."""
    names = table.kind.names
    # A batch may come to nothing, and make no commit; this one does not.
    new = table.key()
    table.send(Batch([new], [table.row(new)]))
    row = table.row(new)
    again = table.commit_info(table.number)
    before = sorted(table.states)[-2] if len(table.states) > 1 else table.version
    deletes, images = table.frame([row[: table.kind.key]], table.kind.key), table.frame([row])
    change = NetChange(Removed(tuple(names[: table.kind.key]), deletes), images)
    request = CommitRequest(table.path, change, again, max_keys=1, expected_version=before)
    with pytest.raises(TransientError, match="meanwhile"):
        table.commit(Batch([new], [row]), request)
    assert newest_version(table.path) == table.version


def _vacuumed(table: Table) -> None:
    """OPTIMIZE and a VACUUM of everything that is not needed leave the whole table, which takes a change."""
    check = "spark.databricks.delta.retentionDurationCheck.enabled"
    table.session.sql(f"OPTIMIZE delta.`{table.path}`")
    table.session.conf.set(check, "false")
    table.session.sql(f"VACUUM delta.`{table.path}` RETAIN 0 HOURS")
    table.session.conf.unset(check)
    table.send(Batch([key := table.key()], [table.row(key)]))
    table.check()


# What somebody else does to the table, and a batch that meets it; the dictionary knows of neither.
DRIFTS = {
    "deleted": ("DELETE FROM {} WHERE id = 1", Batch([(1,)], [(1, "new")])),
    "added": ("INSERT INTO {} VALUES (50, 'x')", Batch([(50,)], [(50, "new")])),
    "doubled": ("INSERT INTO {} VALUES (2, 'x')", Batch([(2,), (3,)], [])),
    "moved": ("UPDATE {} SET id = 60 WHERE id = 4", Batch([(4,), (60,)], [(60, "new")])),
    "one added and one gone": ("UPDATE {} SET id = 7 WHERE id = 6", Batch([(6,), (7,), (70,)], [(70, "new")])),
}


@pytest.mark.parametrize(
    ("way", "drifts"),
    [
        (MANY, ("one added and one gone",)),
        *(pytest.param(way, tuple(DRIFTS), marks=pytest.mark.full) for way in (FEW, MANY, LINK)),
    ],
)
def test_drifted_rows_are_reported_at_the_next_touch(
    spark: SparkSession, tmp_path: Path, way: Way, drifts: tuple[str, ...]
) -> None:
    """Any drift is found, even if the number of rows is right: nothing is committed, by literals or by a join."""
    kind = Kind("drifted", (("id", "bigint"), V), 1)
    table = Table(spark.newSession(), str(tmp_path / "table"), kind, way, random.Random(SEED))
    table.create([(n, f"v{n}") for n in range(8) if n != 7])
    for name in drifts:
        statement, batch = DRIFTS[name]
        spark.sql(statement.format(f"delta.`{table.path}`"))
        table.version = newest_version(table.path)
        before = sorted(Path(table.path).glob("*.parquet"))
        with pytest.raises(DriftedError):
            table.send(batch)
        assert newest_version(table.path) == table.version, name
        assert sorted(Path(table.path).glob("*.parquet")) == before, name
    assert table.send(Batch([(5,), (80,)], [(80, "new")])).deleted == 1, "what has not drifted is written"
    with pytest.raises(DriftedError):
        table.send(Batch([], [(1, "only")], truncate=True), presupposed=1)
    met = table.send(Batch([(90,), (90,)], []), presupposed=None)
    assert met.deleted == 0, "a view does not know what it meets"


@pytest.mark.full
@pytest.mark.parametrize("way", [FEW, *(pytest.param(way, marks=pytest.mark.full) for way in (MANY, LINK))])
def test_more_files_than_the_checksum_lists(spark: SparkSession, tmp_path: Path, way: Way) -> None:
    """Files are found by the table's state then; of 60 one goes whole, one gets a vector."""
    kind = Kind("files", (("id", "bigint"), V), 1)
    table = Table(spark.newSession(), str(tmp_path / "table"), kind, way, random.Random(SEED))
    rows = [(n, f"v{n}") for n in range(120)]
    session = table.session
    session.range(0, 120, 1, 60).selectExpr("id", "concat('v', id) AS v").write.format("delta").option(
        "delta.enableDeletionVectors", "true"
    ).save(table.path)
    table.rows, table.version = {(n,): row for n, row in enumerate(rows)}, 0
    table.send(Batch([(0,), (1,), (7,), (500,)], [(7, "new"), (500, "newer")]))
    table.check()
    table.send(Batch([(n,) for n in range(3, 119)], []))
    table.check()


def test_a_table_that_asks_more_of_a_writer_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody has switched row tracking on: nothing is written, and the error names it."""
    kind = Kind("tracked", (("id", "bigint"), V), 1)
    table = Table(spark.newSession(), str(tmp_path / "table"), kind, FEW, random.Random(SEED))
    table.create([(1, "a"), (2, "b")])
    table.session.sql(f"ALTER TABLE delta.`{table.path}` SET TBLPROPERTIES ('delta.enableRowTracking' = 'true')")
    table.version = newest_version(table.path)
    with pytest.raises(LakeError, match="rowTracking"):
        table.send(Batch([(2,)], [(2, "d")]))
    assert newest_version(table.path) == table.version
    table.check(0)


def test_a_table_that_somebody_has_partitioned_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Rows would need a partition in the log, which no file of a cycle has: nothing is written."""
    path = str(tmp_path / "table")
    spark.range(4).selectExpr("id", "id % 2 AS v").write.format("delta").partitionBy("v").save(path)
    change, info = NetChange(images=spark.range(1).selectExpr("id", "id AS v")), CommitInfo("try", 1, "{}")
    with pytest.raises(LakeError, match="it has partitions, which lakeproof does not write"):
        apply_change(spark.newSession(), CommitRequest(path, change, info))
    assert newest_version(path) == 0


class Held:
    """A commit in its own thread, which stands right before its end."""

    def __init__(self, table: Table, batch: Batch, flag: Path) -> None:
        self.flag = flag
        self.error: BaseException | None = None
        # A test that fails before it lets the commit go on must not keep the process from ending.
        self.thread = threading.Thread(target=self._run, args=(table, batch), daemon=True)
        self.thread.start()
        while not flag.exists() and self.thread.is_alive():
            self.thread.join(0.02)
        assert self.thread.is_alive(), self.error

    def _run(self, table: Table, batch: Batch) -> None:
        try:
            with watched(Armed.parse(f"apply.before_commit@hold:{self.flag}")):
                table.send(batch)
        except BaseException as error:  # noqa: BLE001  raised again in the test's own thread
            self.error = error

    def go_on(self) -> BaseException | None:
        """Let it end; what it raised."""
        self.flag.unlink()
        self.thread.join()
        return self.error


def make_table(spark: SparkSession, path: Path, way: Way) -> Table:
    """Write four rows in two files."""
    kind = Kind("raced", (("id", "bigint"), V), 1, files=2)
    # Landed rows may come in a single file, which OPTIMIZE would leave as it is.
    table = Table(spark.newSession(), str(path / "table"), kind, FEW, random.Random(SEED))
    table.create([(n, f"v{n}") for n in range(4)])
    table.way = way
    return table


RACING = pytest.mark.parametrize(
    "way", [pytest.param(FEW, marks=pytest.mark.full, id="by spark"), pytest.param(LINK, id="links")]
)


@RACING
def test_optimize_between_scan_and_commit_wins_and_the_cycle_is_redone(
    spark: SparkSession, tmp_path: Path, way: Way
) -> None:
    """The rows' places are not what they were: nothing is committed, and a second try stands on the new files."""
    table = make_table(spark, tmp_path, way)
    batch = Batch([(1,), (9,)], [(1, "new"), (9, "more")])
    held = Held(table, batch, tmp_path / "flag")
    spark.sql(f"OPTIMIZE delta.`{table.path}`")
    optimized = newest_version(table.path)
    assert optimized == table.version + 1
    assert isinstance(held.go_on(), TransientError)
    assert newest_version(table.path) == optimized
    table.send(batch)
    table.check()


@RACING
def test_of_two_writers_of_one_cycle_the_loser_stops(spark: SparkSession, tmp_path: Path, way: Way) -> None:
    """The other way commits the same number meanwhile: one commit stands, and the number is then refused."""
    table = make_table(spark, tmp_path, way)
    batch = Batch([(1,), (2,)], [(2, "new")])
    held = Held(table, batch, tmp_path / "flag")
    other = Table(
        spark.newSession(), table.path, table.kind, MANY, table.rng, dict(table.rows), table.version, table.number
    )
    other.send(batch)
    assert isinstance(held.go_on(), TransientError)
    with pytest.raises(TransientError, match="meanwhile"):
        table.send(batch)
    assert newest_version(table.path) == other.version
    taken_back = clean_log(table.path, table.version, lambda commit: "conformance" in commit.txns)
    assert newest_version(table.path) == taken_back.base == other.version + 1
    table.version = taken_back.base
    table.send(batch)
    table.check()


@pytest.mark.parametrize("way", [FEW, LINK])
def test_rows_of_a_stranger_end_the_work(spark: SparkSession, tmp_path: Path, way: Way) -> None:
    """An append between scan and commit: ours is not made, its writer is named at once, and no try passes over it."""
    table = make_table(spark, tmp_path, way)
    batch = Batch([(1,)], [])
    held = Held(table, batch, tmp_path / "flag")
    # In its own session: in the held one a commit would carry the held one's number.
    stranger = Table(spark.newSession(), table.path, table.kind, MANY, table.rng)
    stranger.frame([(77, "stranger")]).write.format("delta").mode("append").save(table.path)
    assert isinstance(held.go_on(), ForeignCommitError)
    with pytest.raises(LakeError, match="someone else"):
        table.send(batch)


@pytest.mark.full
@pytest.mark.parametrize(("way", "portable"), WAYS)
def test_a_key_that_is_null_in_all_columns_and_meets_no_row(
    spark: SparkSession, tmp_path: Path, way: Way, portable: bool
) -> None:
    """Beside one that meets a row: Delta's MERGE fails there when it writes deletion vectors."""
    kind = Kind("null keys", (("a", "int"), ("b", "string"), ("n", "int")), 2, null_safe=True)
    path = str(tmp_path / "table")
    table = Table(spark.newSession(), path, kind, way, random.Random(SEED), portable=portable)
    table.create([(1, "x", 1), (2, None, 2), (None, "y", 3)])
    for presupposed in (1, None):
        table.send(Batch([next(iter(table.rows)), (None, None)], []), presupposed=presupposed)
    table.send(Batch([(None, None)], [(None, None, 4)]), presupposed=None)
    table.check()
    assert [row[2] for row in table.rows.values()] == [3, 4]


def test_keys_of_many_bytes_are_joined(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text too large to be collected beside so many others leaves all of them where they are."""
    path, session = str(tmp_path / "table"), spark.newSession()
    rows = session.range(8).selectExpr("concat('key ', id) AS k", "id AS v")
    apply_change(session, CommitRequest(path, NetChange(images=rows), CommitInfo("try", 1, "{}"), create=TableSpec()))
    joined: list[Any] = []
    monkeypatch.setattr(spark_commit, "KEYS_BYTES_MAX", 4)  # inside: its real limit takes megabytes of keys
    by_join = spark_commit._by_join

    def counted(*given: Any) -> Any:
        joined.append(given)
        return by_join(*given)

    monkeypatch.setattr(spark_commit, "_by_join", counted)  # inside: counts the joins
    change, info = NetChange(Removed(("k",), rows.where("v IN (1, 2)").select("k"))), CommitInfo("try", 2, "{}")
    assert apply_change(session, CommitRequest(path, change, info, max_keys=2)).deleted == 2
    assert joined
    assert sorted(r["v"] for r in session.read.format("delta").load(path).collect()) == [0, 3, 4, 5, 6, 7]
