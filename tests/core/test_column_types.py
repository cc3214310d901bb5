"""The columns of a Delta table with Spark's names of their types, from its log alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lakeproof.lake.delta.column_types import column_types
from tests.core.test_reader_features import PLAIN, column, commit, metadata


def _of(*columns: dict[str, Any]) -> dict[str, Any]:
    return {"metaData": metadata(*columns)}


def test_types_have_the_names_of_sql(tmp_path: Path) -> None:
    """Nested types too; a column that was put away is none."""
    tags: Any = {"type": "array", "elementType": "long", "containsNull": True}
    pairs: Any = {"type": "map", "keyType": "string", "valueType": tags, "valueContainsNull": True}
    one: Any = {"type": "struct", "fields": [column("a", "byte"), column("b", pairs)]}
    plain = [column("day", "date"), column("n"), column("total", "decimal(12,2)"), column("s", "short")]
    nested = [column("tags", tags), column("one", one), column("_lp_dropped_7_3")]
    commit(tmp_path, 0, {"protocol": PLAIN}, _of(*plain, *nested))
    assert column_types(str(tmp_path)) == {
        "day": "date",
        "n": "int",
        "total": "decimal(12,2)",
        "s": "smallint",
        "tags": "array<bigint>",
        "one": "struct<a:tinyint,b:map<string,array<bigint>>>",
    }


def test_a_version_has_the_columns_that_it_had(tmp_path: Path) -> None:
    """Without a version it is the newest; a table that was never made has none."""
    commit(tmp_path, 0, {"protocol": PLAIN}, _of(column("n")))
    commit(tmp_path, 1, _of(column("n", "long")))
    assert column_types(str(tmp_path), 0) == {"n": "int"}
    assert column_types(str(tmp_path)) == {"n": "bigint"}
    assert column_types(str(tmp_path / "none")) == {}
