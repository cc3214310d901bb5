"""A view's SQL reads the names it declares and nothing else, and answers the same each time it is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.names import TableName
from lakeproof.views.definition import bind

pytestmark = [pytest.mark.spark]

REFUSED = {
    "SELECT reflect('java.lang.System', 'getenv', 'PGPASSWORD') AS x FROM o": "runs any Java method",
    "SELECT java_method('java.lang.System', 'getenv', 'PGPASSWORD') AS x FROM o": "runs any Java method",
    "SELECT try_reflect('java.lang.System', 'getenv', 'PGPASSWORD') AS x FROM o": "runs any Java method",
    "SELECT * FROM text.`{file}`": "is not one of the names",
    "SELECT * FROM delta.`{file}`": "is not one of the names",
    "SELECT * FROM spark_catalog.default.o": "is not one of the names",
    "SELECT * FROM o WHERE EXISTS (SELECT 1 FROM text.`{file}`)": "is not one of the names",
    "WITH a AS (WITH b AS (SELECT * FROM text.`{file}`) SELECT * FROM b) SELECT * FROM a": "is not one of the names",
    "SELECT o.*, x.* FROM o, LATERAL (SELECT * FROM csv.`{file}`) x": "is not one of the names",
    "SELECT * FROM table_changes('o', 0)": "the function table_changes",
    "SELECT 1) UNION ALL (SELECT 2": "Syntax error",
    "SELECT 1; SELECT 2": "Syntax error",
    "SHOW TABLES": "a command",
    "DELETE FROM o": "a command",
    "SELECT rand() AS x FROM o": "rand()",
    "SELECT (SELECT uuid()) AS x FROM o": "uuid()",
    "SELECT shuffle(array(id)) AS x FROM o": "shuffle()",
    "SELECT input_file_name() AS x FROM o": "input_file_name()",
    "SELECT id FROM o WHERE v < current_timestamp()": "current_timestamp()",
    "SELECT current_date AS x FROM o": "current_date()",
    "SELECT current_user() AS x FROM o": "current_user()",
    "SELECT * FROM o TABLESAMPLE (50 PERCENT)": "TABLESAMPLE",
    "SELECT any_value(v) AS x FROM o": "order of rows",
    "SELECT first(v) AS x FROM o GROUP BY id": "order of rows",
    "SELECT id, first(v) OVER (PARTITION BY id) AS x FROM o": "order of rows",
    "SELECT collect_list(v) AS x FROM o": "array_sort",
    "SELECT string_agg(v, ',') AS x FROM o": "WITHIN GROUP",
}
TAKEN = (
    "SELECT * FROM o;",
    "TABLE o",
    "FROM o |> WHERE id > 1",
    "SELECT a.id, b.v FROM O a JOIN o b USING (v)",
    "WITH c AS (SELECT * FROM o) SELECT c.id FROM c WHERE id IN (SELECT max(id) FROM c)",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT o.id, y FROM o LATERAL VIEW explode(array(1, 2)) t AS y",
    "SELECT r.id, (SELECT max(v) FROM o WHERE o.id = r.id) AS m FROM range(3) r",
    "SELECT id, row_number() OVER (PARTITION BY v ORDER BY id) AS n, first(v) OVER (ORDER BY id) AS f FROM o",
    "SELECT array_sort(collect_list(v)) AS a, string_agg(v, ',') WITHIN GROUP (ORDER BY v) AS b, max_by(v, id) AS c FROM o",
    "SELECT * FROM VALUES (1, 'x') t(a, b)",
    "SELECT date_trunc('day', timestamp'2020-01-01') AS d, transform(array(id), x -> x + 1) AS a FROM o",
)


def _bind(spark: SparkSession, folder: Path, text: str) -> None:
    file = folder / "v.sql"
    file.write_text(text, encoding="utf-8")
    view = ViewConfig(name="v", sql_file=file, reads={"o": ("shop", TableName("public", "o"))})
    session = spark.newSession()
    bind(session, view, {"o": session.createDataFrame([(1, "a")], "id int, v string")})


def test_what_reads_or_says_anything_else_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the forbidden element, before a file is opened."""
    secret = tmp_path / "secret"
    secret.write_text("s", encoding="utf-8")
    for text, reason in REFUSED.items():
        with pytest.raises(ConfigError) as refused:
            _bind(spark, tmp_path, text.format(file=secret))
        assert reason in str(refused.value), (text, str(refused.value))


@pytest.mark.full
def test_queries_over_the_names_are_taken(spark: SparkSession, tmp_path: Path) -> None:
    """Names may be written in any valid form."""
    for text in TAKEN:
        _bind(spark, tmp_path, text)
