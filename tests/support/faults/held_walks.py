"""One table for each cause for which a table is held: what brings it there, and what its way out asks for beside a copy.

The walks themselves, and that none is missing, are in `tests/scenarios/test_every_way_out.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import yaml
from psycopg.sql import SQL, Identifier
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.commands.publish import pause
from lakeproof.config.load import load
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.columns import quoted
from lakeproof.lake.records.held import HeldCause, WayOut
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.faults.damage import alter, data_files
from tests.support.faults.foreign_commits import foreign_commit
from tests.support.servers.fix_postgres import Database

if TYPE_CHECKING:
    from lakeproof.config.model import Config
    from lakeproof.lake.records.documents import Cut

DSN = "SHOP_DSN"  # the variable's name
# What makes Delta refuse to go back to the version that the newest cut names: its files are gone.
_STRAYS = (
    "ALTER TABLE THE_TABLE SET TBLPROPERTIES ('delta.deletedFileRetentionDuration' = 'interval 0 seconds')",
    "OPTIMIZE THE_TABLE",
    "DELETE FROM THE_TABLE WHERE id > 0",
    "VACUUM THE_TABLE RETAIN 0 HOURS",
)
# café, in LATIN1: no UTF-8.
_OCTETS: LiteralString = "INSERT INTO {t} VALUES (50, convert_from('\\x636166e9', 'SQL_ASCII'))"


@dataclass
class Shop:
    """A source on a real server and its lake, with a configuration that the walks change as a person would."""

    database: Database
    folder: Path
    spark: SparkSession
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)
    lake_name: str = "lake"
    small_files: int = 32

    @property
    def config(self) -> Config:
        """The configuration as it is now."""
        source = {
            "dsn": {"env": DSN},
            "publication": "pub",
            "slot": self.database.name,
            "buckets": 16,
            "tables": ["public.*"],
            "table": {f"public.{name}": settings for name, settings in self.tables.items()},
            # Some causes are Spark's alone: a heap that takes no more, a column that Delta refuses.
            "compaction": {"engine": "spark"},
            "retention": {"small_files": self.small_files, "landing_s": 0},
        }
        file = self.folder / "lakeproof.yaml"
        file.write_text(yaml.safe_dump({"lake": f"{self.folder}/{self.lake_name}", "sources": {"shop": source}}))
        return load(file)

    @property
    def lake(self) -> SourceLake:
        """The source's part of the lake."""
        return SourceLake.open(self.config.location, "shop")

    @property
    def cut(self) -> Cut:
        """The newest cut."""
        cut = newest_cut(self.lake)
        assert cut is not None
        return cut

    def sql(self, name: str, *statements: LiteralString) -> None:
        """Run statements about a table, `{t}`, and its partition, `{p}`."""
        names = {"t": Identifier(name), "p": Identifier(f"{name}_1")}
        self.database.execute(*(SQL(statement).format(**names) for statement in statements))

    def place(self, name: str, layer: Literal["history", "current"]) -> Path:
        """The folder of a Delta table."""
        paths, table = self.lake.paths, TableName("public", name)
        return Path(self.lake.url(paths.history(table) if layer == "history" else paths.current(table)))

    def foreign(self, name: str, *statements: str) -> None:
        """Somebody's session commits to a current table."""
        for statement in statements:
            foreign_commit(self.spark, statement, f"delta.{quoted(str(self.place(name, 'current')))}")

    def follow(self) -> None:
        """Drain what is there, and compact it."""
        drain(self.config, "shop", Until.caught_up())
        compact(self.config, "shop", self.spark, silent, Stop())


Act = Callable[[Shop, str], None]


def sql(*statements: LiteralString) -> Act:
    """Return what runs these statements."""
    return lambda shop, name: shop.sql(name, *statements)


def nothing(_shop: Shop, _name: str) -> None:
    """Do nothing beside what the walk itself does."""


@dataclass(frozen=True)
class Walk:
    """A table's way into a cause and out again.

    `holds` brings it there by what is done to the source, or to the lake; `leaves` is what its remedy asks for beside the
    copy; `settings` is its configuration, `then` what it is changed to with the way out. With `ends_held` what the lake has
    of it stays as it is, and its rows come under another name, or in another lake.
    """

    cause: HeldCause
    way_out: WayOut
    holds: Act = nothing
    leaves: Act = nothing
    make: tuple[LiteralString, ...] = ("CREATE TABLE {t} (id int PRIMARY KEY, v text)",)
    settings: dict[str, Any] | None = None
    then: dict[str, Any] | None = None
    ends_held: bool = False


_ROOT: tuple[LiteralString, ...] = (
    "CREATE TABLE {t} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE {p} PARTITION OF {t} FOR VALUES FROM (0) TO (100)",
)
_BAG: tuple[LiteralString, ...] = ("CREATE TABLE {t} (id int, v text)", "ALTER TABLE {t} REPLICA IDENTITY FULL")
_TOUCH: LiteralString = "UPDATE {t} SET v = 'touched' WHERE id = 1"


def _emptied(layer: Literal["history", "current"]) -> Act:
    def act(shop: Shop, name: str) -> None:
        max((shop.place(name, layer) / "_delta_log").glob("*.json")).write_bytes(b"")
        shop.sql(name, _TOUCH)

    return act


def _gone(shop: Shop, name: str) -> None:
    """Remove the files of a history; maintenance notices."""
    for file in data_files(shop.place(name, "history")):
        file.unlink()
    # Maintenance reads histories of more files than one.
    shop.sql(name, _TOUCH)


def _cut_short(shop: Shop, name: str) -> None:
    for file in data_files(shop.place(name, "current")):
        data = file.read_bytes()
        # History may have linked the same file.
        file.unlink()
        file.write_bytes(data[:40])
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    shop.sql(name, _TOUCH)


def _altered(column: str, value: Any) -> Act:
    """Give all rows of current but the first one value in a column."""

    def act(shop: Shop, name: str) -> None:
        (file,) = data_files(shop.place(name, "current"))

        def change(rows: pa.Table) -> pa.Table:
            number = rows.schema.get_field_index(column)
            kind = rows.schema.field(number).type
            return rows.set_column(number, rows.schema.field(number), pa.array([value] * rows.num_rows, kind))

        alter(file, change)

    return act


def _as_ours(shop: Shop, name: str) -> None:
    """Commit as a cycle that is still to come, and let somebody build on that."""
    folder, key = str(shop.place(name, "current")), TableName("public", name).key
    rows = shop.spark.read.format("delta").load(folder).limit(1)
    message = {"txnAppId": f"lakeproof/shop/1/current/{key}", "txnVersion": "1000"}
    rows.write.format("delta").options(**message).mode("append").save(folder)
    shop.foreign(name, "OPTIMIZE THE_TABLE")
    shop.sql(name, _TOUCH)


def _squat(shop: Shop, name: str) -> None:
    """Put a table in the place of one that the lake does not have yet."""
    shop.spark.range(3).write.format("delta").save(str(shop.place(name, "current")))


def _move_away(shop: Shop, name: str) -> None:
    shop.place(name, "current").rename(shop.folder / f"moved_{name}")


def _pause(shop: Shop, name: str) -> None:
    pause(shop.config, "shop", [TableName("public", name)], silent)
    shop.sql(name, _TOUCH)


def _both(*acts: Act) -> Act:
    def act(shop: Shop, name: str) -> None:
        for one in acts:
            one(shop, name)

    return act


# By the name of its table.
WALKS: dict[str, Walk] = {
    "rewritten": Walk(HeldCause.CATALOG, WayOut.SNAPSHOT, sql("ALTER TABLE {t} ALTER v TYPE text USING v || '!'")),
    "left_it": Walk(
        HeldCause.CATALOG,
        WayOut.PUBLISH_THEN_SNAPSHOT,
        sql("ALTER PUBLICATION pub DROP TABLE {t}", _TOUCH),
        sql("ALTER PUBLICATION pub ADD TABLE {t}"),
    ),
    "part": Walk(
        HeldCause.CATALOG,
        WayOut.SNAPSHOT_OF_ROOT,
        sql("ALTER TABLE whole ATTACH PARTITION {t} FOR VALUES FROM (0) TO (100)", _TOUCH),
        ends_held=True,
    ),
    "misfit": Walk(
        HeldCause.CATALOG,
        WayOut.SAME_IDENTITY_THEN_SNAPSHOT,
        sql("ALTER TABLE {p} REPLICA IDENTITY NOTHING"),
        sql("ALTER TABLE {p} REPLICA IDENTITY FULL", _TOUCH),
        _ROOT,
    ),
    "grown": Walk(
        HeldCause.SCHEMA_CHANGE,
        WayOut.SNAPSHOT,
        sql("ALTER TABLE {t} ADD w double precision DEFAULT random()", _TOUCH),
    ),
    "of_another_schema": Walk(
        HeldCause.SNAPSHOT_SCHEMA, WayOut.SNAPSHOT, sql("ALTER TABLE {t} ADD w double precision DEFAULT random()")
    ),
    "outdated": Walk(HeldCause.SNAPSHOT_OUTDATED, WayOut.SNAPSHOT),
    "not_followed": Walk(HeldCause.SNAPSHOT_NOT_FOLLOWED, WayOut.SNAPSHOT),
    "away": Walk(
        HeldCause.NEXT_INCARNATION,
        WayOut.SNAPSHOT_IF_PUBLISHED,
        sql("ALTER PUBLICATION pub DROP TABLE {t}", _TOUCH),
        sql("ALTER PUBLICATION pub ADD TABLE {t}"),
    ),
    "written_by_others": Walk(
        HeldCause.FOREIGN_COMMIT,
        WayOut.SNAPSHOT,
        _both(lambda shop, name: shop.foreign(name, "DELETE FROM THE_TABLE WHERE id = 3"), sql(_TOUCH)),
    ),
    "built_on": Walk(HeldCause.FOREIGN_COMMIT, WayOut.BY_HAND, _as_ours, ends_held=True),
    "not_taken_back": Walk(
        HeldCause.FOREIGN_COMMIT_STAYS,
        WayOut.BY_HAND,
        _both(lambda shop, name: shop.foreign(name, *_STRAYS), sql(_TOUCH)),
        ends_held=True,
    ),
    "log_emptied": Walk(HeldCause.LOG_DAMAGED, WayOut.SNAPSHOT, _emptied("current")),
    "history_emptied": Walk(HeldCause.LOG_DAMAGED, WayOut.RESTORE_LOG_OR_SNAPSHOT, _emptied("history")),
    "squatted": Walk(HeldCause.TABLE_NOT_NAMED, WayOut.MOVE_TABLE_THEN_SNAPSHOT, _squat, _move_away),
    "history_gone": Walk(HeldCause.HISTORY_UNREADABLE, WayOut.RESTORE_FILE_OR_SNAPSHOT, _gone),
    "not_written": Walk(HeldCause.NOT_WRITTEN, WayOut.SNAPSHOT, _cut_short, make=_BAG),
    "large": Walk(
        HeldCause.ROW_TOO_LARGE,
        WayOut.MORE_MEMORY_THEN_SNAPSHOT,
        sql("INSERT INTO {t} SELECT 50, string_agg(md5(i::text), '') FROM generate_series(1, 130000) i"),
        # What this process writes without Spark goes through no heap.
        make=_BAG,
    ),
    "drifted": Walk(HeldCause.ROWS_DIFFER, WayOut.SNAPSHOT, _both(_altered("id", 7), sql(_TOUCH))),
    "octets": Walk(
        HeldCause.DATA_REFUSED,
        WayOut.CORRECT_TEXT_THEN_SNAPSHOT,
        sql(_OCTETS),
        sql("UPDATE {t} SET v = 'cafe' WHERE id = 50"),
    ),
    "odd_text": Walk(
        HeldCause.DATA_REFUSED,
        WayOut.READ_AS_TEXT_THEN_SNAPSHOT,
        sql("INSERT INTO {t} VALUES (50, 'v', '{{2026-11-26}}')"),
        make=("CREATE TABLE {t} (id int PRIMARY KEY, v text, d date[])",),
        then={"as_text": ["d"]},
    ),
    "twice": Walk(
        HeldCause.KEY_NOT_UNIQUE,
        WayOut.OTHER_KEY_THEN_SNAPSHOT,
        sql("INSERT INTO {t} VALUES (1, 'another')"),
        make=_BAG,
        settings={"key": ["id"]},
        then={},
    ),
    "key_moved": Walk(
        HeldCause.NEW_KEY_NOT_UNIQUE,
        WayOut.SNAPSHOT,
        _both(
            _altered("code", 7),
            sql(
                "CREATE UNIQUE INDEX by_code ON {t} (code)",
                "ALTER TABLE {t} REPLICA IDENTITY USING INDEX by_code",
                "INSERT INTO {t} VALUES (50, 'v', 50)",
            ),
        ),
        make=("CREATE TABLE {t} (id int PRIMARY KEY, v text, code serial)",),
    ),
    "forgotten": Walk(
        HeldCause.SCHEMA_UNKNOWN,
        WayOut.SNAPSHOT,
        sql("BEGIN; UPDATE {t} SET v = 'x'; ALTER TABLE {t} ADD w int; UPDATE {t} SET w = 1; COMMIT"),
    ),
    "refused": Walk(
        HeldCause.COLUMNS_REFUSED, WayOut.BEGIN_AGAIN, sql("ALTER TABLE {t} ADD w int", _TOUCH), ends_held=True
    ),
    "named_oddly": Walk(
        HeldCause.NAMES_NOT_PORTABLE,
        WayOut.OTHER_NAMES_THEN_SNAPSHOT,
        sql('ALTER TABLE {t} RENAME v TO "v, w"', "INSERT INTO {t} VALUES (50, 'v')"),
        sql('ALTER TABLE {t} RENAME "v, w" TO v'),
        settings={"readers": "portable"},
    ),
    "paused": Walk(HeldCause.PAUSED, WayOut.RESUME, _pause),
}  # fmt: skip
