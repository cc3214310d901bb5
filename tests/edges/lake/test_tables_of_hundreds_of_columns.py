"""A table of hundreds of columns in Spark: its session's plans are interpreted, those of any other table are compiled."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from lakeproof.lake.rows.memory import COMPILED_COLUMNS_MAX, fit_table
from lakeproof.names import Oid, TableName
from lakeproof.schema import Column, Identity, SchemaVersion

pytestmark = pytest.mark.spark
_MODES = ("spark.sql.codegen.wholeStage", "spark.sql.codegen.factoryMode")
_COMPILED = ("true", "FALLBACK")


def _version(columns: int) -> SchemaVersion:
    each = (Column(f"c{i}", Oid(23), -1, "integer", "int4", i + 1, identity=False) for i in range(columns))
    return SchemaVersion(TableName("public", "wide"), Oid(16384), Identity.FULL, tuple(each), ())


def _modes_for(spark: SparkSession, columns: int) -> tuple[str | None, ...]:
    session = spark.newSession()
    # As production has it; the tests' own session interprets everything.
    for name, value in zip(_MODES, _COMPILED, strict=True):
        session.conf.set(name, value)
    fit_table(session, 0, _version(columns))
    return tuple(session.conf.get(name) for name in _MODES)


def test_only_the_plans_of_a_very_wide_table_are_interpreted(spark: SparkSession) -> None:
    """Java for an expression over 1,600 columns costs minutes, however few rows there are."""
    assert _modes_for(spark, COMPILED_COLUMNS_MAX) == _COMPILED
    assert _modes_for(spark, COMPILED_COLUMNS_MAX + 1) == ("false", "NO_CODEGEN")
