"""The commands that start Spark, over one small source: compact, refresh, prove; and status after them.

They run one after the other in one process beside the test's, each with its own session: a JVM per command would
take most of the time. That JVM starts quietly, and does not know the source's password.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier

from tests.support.servers.fix_postgres import Database
from tests.support.spark.fix_lake import SPARK, VFORK

pytestmark = [pytest.mark.postgres, pytest.mark.jvm, pytest.mark.slow]

_SECRET = "LP_TEST_CLI_PASSWORD"  # the variable's name
# A minute alone; a start of Spark takes minutes on a machine that is busy.
_TIMEOUT_S = 600.0
_ALL = "public.gone,public.items,public.sold"
_COMMANDS = """
import contextlib, io, json, sys
from lakeproof.cli.main import main

done = []
for line in json.loads(sys.argv[1]):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        done.append((main(line), out.getvalue(), err.getvalue()))
print(json.dumps(done))
gateway = sys.modules["pyspark"].SparkContext._gateway if "pyspark" in sys.modules else None
print(gateway and gateway.jvm.java.lang.System.getenv(sys.argv[2]))
"""


def configure(database: Database, folder: Path) -> Path:
    """Configure three tables and a view."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2))",
        "CREATE TABLE sold (item int, n int, PRIMARY KEY (item, n))",
        "CREATE TABLE gone (id int PRIMARY KEY)",
        "INSERT INTO items SELECT n, n * 1.5 FROM generate_series(1, 20) n",
        "INSERT INTO sold SELECT n % 5 + 1, n FROM generate_series(1, 30) n",
    )
    parts = conninfo_to_dict(database.dsn)
    os.environ[_SECRET] = str(parts.pop("password"))
    (folder / "revenue.sql").write_text(
        "SELECT i.id, sum(i.price) AS revenue FROM items i JOIN sold s ON s.item = i.id GROUP BY i.id\n"
    )
    conf = {name: value.replace(VFORK, "") for name, value in SPARK.conf.items()}
    file = folder / "lakeproof.yaml"
    file.write_text(
        "lake: lake\nsources:\n  shop:\n"
        f"    dsn: {json.dumps(psycopg.conninfo.make_conninfo('', **parts))}\n"
        f"    password: {{env: {_SECRET}}}\n"
        f"    publication: {database.name}\n    slot: {database.name}\n"
        "    buckets: 16\n    tables: [public.items, public.sold, public.gone]\n"
        "views:\n  revenue:\n    sql: revenue.sql\n"
        "    reads: {items: shop/public.items, sold: shop/public.sold}\n"
        f"spark: {{master: {json.dumps(SPARK.master)}, driver_memory: 1g, conf: {json.dumps(conf)}}}\n"
    )
    return file


def run(file: Path, *lines: str, **environment: str) -> list[tuple[int, str, str]]:
    """Exit status, stdout and stderr of each command; a JVM hides Ivy's 90 lines, and a view's SQL can read no password."""
    words = [["-c", str(file), *line.split()] for line in lines]
    done = subprocess.run(
        [sys.executable, "-c", _COMMANDS, json.dumps(words), _SECRET],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
        env={**{name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}, **environment},
    )
    assert (done.returncode, done.stderr) == (0, "")
    results, password = done.stdout.splitlines()
    assert password == "None"
    ended = [(status, out, err) for status, out, err in json.loads(results)]
    for text in (err for _, _, err in ended):
        assert "Traceback" not in text, text
    return ended


def test_a_source_lands_is_compacted_viewed_and_proved(database: Database, tmp_path: Path) -> None:
    """Each command with its result and status: 0 for what is in order, 1 if a table is held, with why and what to do."""
    file = configure(database, tmp_path)
    assert [status for status, _, _ in run(file, "apply", "bootstrap")] == [0, 0]
    database.execute("INSERT INTO items VALUES (21, 7)", "DELETE FROM sold WHERE n = 1", "UPDATE items SET price = 2")
    database.execute(SQL("ALTER PUBLICATION {} DROP TABLE gone").format(Identifier(database.name)))

    done = run(
        file, "drain --once", "compact --json", "refresh --json", f"prove --tables {_ALL}", "status --json", "refresh"
    )
    assert [status for status, _, _ in done] == [0, 1, 0, 1, 1, 0]
    texts = [text for _, text, _ in done[1:]]
    cuts = json.loads(texts[0])
    assert list(cuts["held"]) == ["public.gone"]
    assert cuts["cuts"][-1]["tables"]["public.items"]["changes"] > 0

    views = json.loads(texts[1])
    assert [(v["view"], v["inserted"], v["retracted"]) for v in views] == [("revenue", 5, 0)]

    gone, *rows = [line.split() for line in texts[2].splitlines()[2:5]]
    assert gone[0::4] == ["public.gone", "held"]
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        ("public.items", "21", "21", "yes"),
        ("public.sold", "29", "29", "yes"),
    ]
    assert rows[0][3] == rows[1][3]

    reason, *looked = texts[2].splitlines()[5:]
    assert looked == ["histories: 3 of 3 compared are equal", "views: 1 of 1 compared are equal"]
    assert re.fullmatch(
        r"public\.gone: held since [0-9A-F]+/[0-9A-F]+: it is not published any more .*; what the lake has of it is kept;"
        r" .* run `lakeproof bootstrap shop --tables public\.gone`, then compact .*",
        reason,
    ), reason

    seen = json.loads(texts[3])
    assert (seen["sources"]["shop"]["snapshots"], seen["views"]["revenue"]["cut"]["number"]) == ({}, 1)
    _nothing_to_do_is_reported_without_java(file, database)


def _nothing_to_do_is_reported_without_java(file: Path, database: Database) -> None:
    """If nothing is to be written, nothing is started: a machine without Java gives the same result."""
    database.execute("CREATE TABLE unpublished (n int)", "INSERT INTO unpublished VALUES (1)")
    (drained, _, _), (status, out, _), refreshed = run(file, "drain --once", "compact", "refresh", JAVA_HOME="/nowhere")
    assert drained == 0
    first = out.splitlines()[0]
    assert (status, first.startswith("shop: nothing to do, everything that has landed is in the lake, up to ")) == (
        1,
        True,
    )
    assert "public.gone: held since" in out
    assert refreshed[:2] == (0, "nothing to do: no source that a view reads has a newer cut\n")
    sql = file.parent / "revenue.sql"
    sql.write_text(sql.read_text().replace("sum(i.price)", "sum(i.price) + 1"))
    database.execute("INSERT INTO items VALUES (77, 1)")
    words = ("refresh", "replace revenue", "drain --once", "compact")
    refreshed, replaced, (drained, _, _), compacted = run(file, *words, JAVA_HOME="/nowhere")
    assert (refreshed[0], drained) == (0, 0), "an edit is no work of a refresh"
    assert (replaced[0], "Java /nowhere" in replaced[2]) == (2, True), "another definition is work for Spark"
    assert (compacted[0], "Java" in compacted[2]) == (1, False), "a row is work for this process"
    assert "nothing to do" not in compacted[1]
