"""The commands that start Spark, each in a process of its own, over one small source: compact, prove, refresh, status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.fix_postgres import Database

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]

_SECRET = "W2D_TEST_CLI_PASSWORD"  # the variable's name
# Each command starts a Spark of its own: 20 s alone, minutes on a machine that is busy.
_TIMEOUT_S = 600.0


def configure(database: Database, folder: Path) -> Path:
    """Two tables and a view."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price numeric(10, 2))",
        "CREATE TABLE sold (item int, n int, PRIMARY KEY (item, n))",
        "INSERT INTO items SELECT n, n * 1.5 FROM generate_series(1, 20) n",
        "INSERT INTO sold SELECT n % 5 + 1, n FROM generate_series(1, 30) n",
    )
    parts = conninfo_to_dict(database.dsn)
    os.environ[_SECRET] = str(parts.pop("password"))
    (folder / "revenue.sql").write_text(
        "SELECT i.id, sum(i.price) AS revenue FROM items i JOIN sold s ON s.item = i.id GROUP BY i.id\n"
    )
    file = folder / "wal2delta.yaml"
    file.write_text(
        "lake: lake\nsources:\n  shop:\n"
        f"    dsn: {json.dumps(psycopg.conninfo.make_conninfo('', **parts))}\n"
        f"    password: {{env: {_SECRET}}}\n"
        f"    publication: {database.name}\n    slot: {database.name}\n"
        "    tables: [public.items, public.sold]\n"
        "views:\n  revenue:\n    sql: revenue.sql\n"
        "    reads: {items: shop/public.items, sold: shop/public.sold}\n"
        'spark: {master: "local[2]", driver_memory: 1g, conf: {spark.sql.shuffle.partitions: 2}}\n'
    )
    return file


def run(file: Path, *line: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one command."""
    done = subprocess.run(
        [sys.executable, "-m", "wal2delta", "-c", str(file), *line],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


def document(file: Path, *line: str) -> tuple[int, Any]:
    """Exit status and JSON result."""
    status, out, err = run(file, *line, "--json")
    assert out, err
    return status, json.loads(out)


def test_a_source_lands_is_compacted_viewed_and_proved(database: Database, tmp_path: Path) -> None:
    """Each command with its result and status 0."""
    file = configure(database, tmp_path)
    assert run(file, "apply")[0] == 0
    assert run(file, "bootstrap")[0] == 0
    database.execute("INSERT INTO items VALUES (21, 7)", "DELETE FROM sold WHERE n = 1", "UPDATE items SET price = 2")
    assert run(file, "drain", "--once")[0] == 0

    status, cuts = document(file, "compact")
    assert (status, cuts["held"]) == (0, {})
    assert cuts["cuts"][-1]["tables"]["public.items"]["changes"] > 0

    status, views = document(file, "refresh")
    assert status == 0
    assert [(v["view"], v["inserted"], v["retracted"]) for v in views] == [("revenue", 5, 0)]

    status, out, err = run(file, "prove")
    assert status == 0, err
    rows = [line.split() for line in out.splitlines()[2:4]]
    assert [(row[0], row[1], row[2], row[4]) for row in rows] == [
        ("public.items", "21", "21", "yes"),
        ("public.sold", "29", "29", "yes"),
    ]
    assert rows[0][3] == rows[1][3]

    status, seen = document(file, "status")
    assert status == 0
    assert (seen["sources"]["shop"]["snapshots"], seen["views"]["revenue"]["cut"]["number"]) == ({}, 1)
