"""Expectations in this process and by Spark: one verdict over every kind of value, or Spark's alone with its reason."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from psycopg import sql
from pydantic import SecretStr
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.expect import expect
from lakeproof.config.model import Config, TableConfig
from lakeproof.events import Event
from lakeproof.expectations.configured import Expectation
from lakeproof.expectations.evaluate import evaluate
from lakeproof.expectations.in_pandas import SparkNeededError, pandas_frame
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.read.spark.open import open_lake
from lakeproof.names import TableName
from lakeproof.postgres.connections.connect import connect
from tests.edges.values.exact_values import DEFINITIONS, columns
from tests.support.lake.proof_steps import WITHOUT, into_the_lake
from tests.support.servers.fix_postgres import Database

pytestmark = [pytest.mark.postgres]
_TABLE = TableName("public", "every")
_ROWS = 45
SEED = int(os.environ["LAKEPROOF_SEED"])
_ASCII = ["ab12", "a-b", "", "Zz 9", "ab12", None, "a.b@c.org"]
_REGEXES = [r"^[a-z]+\d*$", r"\d{2}", "b|9", r"^$", r"(?:[A-Z]\w) \d", r"\.b@", r"\d{1}{2}", "9$*"]
_NO_ARGUMENTS = ["values_to_be_null", "values_to_not_be_null", "values_to_be_unique"]


def _config(database: Database, tmp_path: Path, checks: list[dict[str, Any]] | None = None) -> Config:
    tables = {_TABLE.key: TableConfig.model_validate({"expectations": checks or []})}
    source = database.source().model_copy(update={"table": {_TABLE: tables[_TABLE.key]}})
    return Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})


def _put(database: Database) -> dict[str, str]:
    """Make a table with a column of every kind, and return each column's type; every second column has its extremes."""
    version = int(database.value("SELECT current_setting('server_version_num')::int"))
    values = {t: v[:_ROWS] for t, v in columns(11, _ROWS, version).items()}
    names = {f"c{number}": kind for number, kind in enumerate(values)}
    lists = [*values.values()]
    # The same without what no type of the lake holds: there most expectations are evaluated in this process.
    plain = {
        "p_int": "int8",
        "p_dec": "numeric(9,2)",
        "p_float": "float8",
        "p_text": "text",
        "p_bool": "bool",
        "p_day": "date",
        "p_time": "timestamptz",
        "p_none": "int4",
    }
    names |= plain
    plain_values: list[list[str | None]] = [
        [None if n % 9 == 0 else str(n % 13) for n in range(_ROWS)],
        [None if n % 9 == 0 else f"{n % 13}.{n % 3}" for n in range(_ROWS)],
        [None if n % 9 == 0 else str(n / 4) for n in range(_ROWS)],
        [_ASCII[n % len(_ASCII)] for n in range(_ROWS)],
        [(None, "t", "f")[n % 3] for n in range(_ROWS)],
        [f"2024-01-{n % 28 + 1:02}" for n in range(_ROWS)],
        [f"2024-01-01 00:00:{n % 28:02}.5+02" for n in range(_ROWS)],
        [None] * _ROWS,
    ]
    lists += plain_values
    with connect(SecretStr(database.dsn)) as conn:
        conn.execute("SET search_path = public")
        conn.execute(DEFINITIONS)
        parts = [sql.SQL("{} {}").format(sql.Identifier(n), sql.SQL(kind)) for n, kind in names.items()]
        conn.execute(sql.SQL("CREATE TABLE every (id int PRIMARY KEY, {})").format(sql.SQL(", ").join(parts)))
        casts = [sql.SQL("%s::text::{}").format(sql.SQL(kind)) for kind in names.values()]
        insert = sql.SQL("INSERT INTO every VALUES (%s, {})").format(sql.SQL(", ").join(casts))
        for number in range(_ROWS):
            conn.execute(insert, [number, *(each[number] for each in lists)])
        conn.execute("CREATE PUBLICATION pub FOR TABLE every")
        # Files with deletion vectors, and several of them.
        conn.execute("CREATE TABLE gone AS SELECT * FROM every")
    return names


def _checks(names: dict[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name in ["id", *names]:
        for each in _NO_ARGUMENTS:
            yield (
                f"expect_column_{each}",
                {"column": name, "mostly": 0.5} if each.endswith("null") else {"column": name},
            )
        yield "expect_compound_columns_to_be_unique", {"column_list": [name, "p_int"]}
        for values in ([1, 2, 7], ["a", "ab12", ""], [True], [0.5, 1.25], [0.0, 7], [1 << 60]):
            yield "expect_column_values_to_be_in_set", {"column": name, "value_set": values}
            yield "expect_column_values_to_not_be_in_set", {"column": name, "value_set": values}
        for bounds in ({"min_value": 3, "max_value": 9}, {"min_value": 0.5, "strict_min": True}, {"max_value": 7}):
            for each in ("values", "max", "min"):
                yield f"expect_column_{each}_to_be_between", {"column": name, **bounds}
        yield "expect_column_value_lengths_to_be_between", {"column": name, "min_value": 1, "max_value": 4}
        yield "expect_column_value_lengths_to_equal", {"column": name, "value": 4}
        for regex in [*_REGEXES, r"(?i)A"]:
            yield "expect_column_values_to_match_regex", {"column": name, "regex": regex}
            yield "expect_column_values_to_not_match_regex", {"column": name, "regex": regex}
    yield "expect_table_row_count_to_equal", {"value": _ROWS}
    yield "expect_table_row_count_to_be_between", {"max_value": 3}
    yield "expect_table_column_count_to_equal", {"value": len(names) + 1}
    yield "expect_table_column_count_to_be_between", {"min_value": 2}
    yield "expect_column_to_exist", {"column": "p_day"}
    yield "expect_column_to_exist", {"column": "nowhere"}
    yield "expect_table_columns_to_match_set", {"column_set": ["id", *names]}
    yield "expect_table_columns_to_match_set", {"column_set": ["id"], "exact_match": False}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("share", [8, pytest.param(1, marks=pytest.mark.full)])
def test_both_engines_give_one_verdict_over_every_kind(
    database: Database, spark: SparkSession, tmp_path: Path, share: int
) -> None:
    """Verdict and counts are the same wherever this process evaluates at all; of ordinary kinds it evaluates nearly all."""
    names = _put(database)
    config = _config(database, tmp_path)
    bootstrap(config, "shop")
    into_the_lake(config)
    database.execute("UPDATE every SET p_int = 12 WHERE id % 7 = 3", "DELETE FROM every WHERE id = 44")
    database.execute("INSERT INTO every SELECT * FROM gone WHERE id = 44")
    into_the_lake(config)
    rows, frame = read_lake(config).table("shop", _TABLE), open_lake(spark, config).table("shop", _TABLE)
    mine: list[tuple[Expectation, Any]] = []
    # One column of each of the lake's types, the ordinary ones first.
    types = {str(rows.schema.field(name).type): name for name in [*reversed(names), "id"]}
    types |= {str(rows.schema.field(name).type): name for name in names if name.startswith("p_")}
    chosen = {name: names.get(name, "") for name in types.values() if name != "id"}
    for number, (kind, kwargs) in list(enumerate(_checks(chosen)))[SEED % share :: share]:
        check = Expectation(f"c{number}", kind, kwargs, "error")
        try:
            mine.append((check, pandas_frame(rows.delta, rows.columns, [check], 4096)))
        except SparkNeededError:
            continue
    here = {result.name: result for check, held in mine for result in evaluate(held, "every", [check])}
    there = {result.name: result for result in evaluate(frame, "every", [check for check, _ in mine])}
    differing = {
        (check.type, str(check.kwargs), str(rows.schema.field(check.columns[0]).type) if check.columns else ""): (
            here[check.name],
            there[check.name],
        )
        for check, _ in mine
        if check.type != "expect_column_to_exist" and here[check.name] != there[check.name]
    }
    assert differing == {}
    if share == 1:
        assert {(check.columns or ("",))[0] for check, _ in mine} >= {"id", *chosen}
    of_plain = [check for check, _ in mine if check.columns[:1] in (["p_int"], ["p_text"], ["p_dec"], ["p_float"])]
    assert len(of_plain) > 60 // (2 * share - 1)


def test_expectations_of_a_table_that_fits_start_no_jvm(database: Database, tmp_path: Path) -> None:
    """Whoever asks for a session would fail this test; results are at the newest cut."""
    database.execute(
        "CREATE TABLE every (id int PRIMARY KEY, plan text, d date)",
        "INSERT INTO every SELECT n, CASE WHEN n > 4 THEN 'free' END, date '2024-01-01' FROM generate_series(1, 9) n",
        "CREATE PUBLICATION pub FOR TABLE every",
    )
    checks = [
        {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}},
        {"type": "expect_column_values_to_not_be_null", "kwargs": {"column": "plan"}},
        {"type": "expect_column_values_to_match_regex", "kwargs": {"column": "plan", "regex": "^fr"}},
        {"type": "expect_table_row_count_to_equal", "kwargs": {"value": 8}},
    ]
    config = _config(database, tmp_path, checks)
    bootstrap(config, "shop")
    into_the_lake(config)
    database.execute("DELETE FROM every WHERE id = 9")
    into_the_lake(config)
    events = list[Event]()
    report = expect(config, "shop", None, WITHOUT, events.append)
    assert [result.passed for result in report.tables[_TABLE]] == [True, False, True, True]
    assert report.tables[_TABLE][1].counts["unexpected_count"] == 4
    assert events == []
