"""The columns of a Delta table with Spark's names of their types, from its log alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lakeproof.lake.delta.log.commits import commit_name
from lakeproof.lake.delta.log.protocol import column_types


def column(name: str, kind: Any = "integer") -> dict[str, Any]:
    """A column of a schema's text."""
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def commit(path: Path, version: int, *columns: dict[str, Any]) -> None:
    """Write a commit that gives a table these columns."""
    schema = json.dumps({"type": "struct", "fields": list(columns)})
    actions = (
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {"id": "x", "schemaString": schema}},
    )
    file = path / commit_name(version)
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")


def test_types_have_the_names_of_sql(tmp_path: Path) -> None:
    """Nested types too; a column that was put away is none."""
    tags: Any = {"type": "array", "elementType": "long", "containsNull": True}
    pairs: Any = {"type": "map", "keyType": "string", "valueType": tags, "valueContainsNull": True}
    one: Any = {"type": "struct", "fields": [column("a", "byte"), column("b", pairs)]}
    plain = [column("day", "date"), column("n"), column("total", "decimal(12,2)"), column("s", "short")]
    nested = [column("tags", tags), column("one", one), column("_lp_dropped_7_3")]
    commit(tmp_path, 0, *plain, *nested)
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
    commit(tmp_path, 0, column("n"))
    commit(tmp_path, 1, column("n", "long"))
    assert column_types(str(tmp_path), 0) == {"n": "int"}
    assert column_types(str(tmp_path)) == {"n": "bigint"}
    assert column_types(str(tmp_path / "none")) == {}
