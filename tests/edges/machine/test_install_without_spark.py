"""An installation without Spark: a host that fills a lake, compacts, proves and maintains it, up to work for Spark.

The work of each command does not belong here, only that it needs no Spark, or says which table does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from tests.support.servers.fix_postgres import Database
from tests.support.spark.spark_steps import into_the_lake

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow]

ROOT = Path(__file__).parents[3]
# Keys that Spark does not compare exactly, equal rows, whole old rows, a configured key that may be NULL.
TABLES: tuple[LiteralString, ...] = (
    "CREATE TABLE rates (n numeric(9, 3) PRIMARY KEY, v text)",
    "INSERT INTO rates VALUES ('NaN', 'a'), (1.5, 'b'), (2, 'c')",
    "CREATE TABLE floats (f float8, t timetz, d date, v int, PRIMARY KEY (f, t, d))",
    "INSERT INTO floats VALUES ('-0', '10:00+02', 'infinity', 1), ('NaN', '10:00+00', '2024-02-29', 2)",
    "CREATE TABLE bag (n int, v text)",
    "ALTER TABLE bag REPLICA IDENTITY FULL",
    "INSERT INTO bag VALUES (1, 'x'), (1, 'x'), (1, 'x'), (NULL, NULL), (NULL, NULL)",
    "CREATE TABLE whole (id int PRIMARY KEY, v text)",
    "ALTER TABLE whole REPLICA IDENTITY FULL",
    "INSERT INTO whole VALUES (1, NULL), (2, 'b')",
    "CREATE TABLE kept (k int UNIQUE, v text)",
    "ALTER TABLE kept REPLICA IDENTITY FULL",
    "INSERT INTO kept VALUES (NULL, 'n'), (1, 'a'), (2, 'b')",
)
CHANGES: tuple[LiteralString, ...] = (
    "UPDATE rates SET n = n + 1",
    "DELETE FROM rates WHERE n = 3",
    "UPDATE floats SET f = '0' WHERE f = 0",
    "UPDATE floats SET v = 3 WHERE d = '2024-02-29'",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag WHERE n = 1)",
    "UPDATE bag SET v = 'now' WHERE ctid = (SELECT min(ctid) FROM bag WHERE n IS NULL)",
    "INSERT INTO bag VALUES (1, 'x')",
    "UPDATE whole SET v = 'c' WHERE id = 1",
    "DELETE FROM whole WHERE id = 2",
    "UPDATE kept SET v = 'm' WHERE k IS NULL",
    "UPDATE kept SET k = 3 WHERE k = 1",
)


@pytest.fixture(scope="module")
def slim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the locked versions of what `pip install lakeproof` asks for; it has no pip of its own."""
    folder = tmp_path_factory.mktemp("slim")
    uv = [sys.executable, "-m", "uv"]
    python = folder / "bin" / "python"
    cached = {"UV_CACHE_DIR": str(ROOT / ".cache" / "uv"), **os.environ}
    install = [*uv, "pip", "install", "-q", "--python", str(python), "--require-hashes"]
    for command in (
        [*uv, "venv", "-q", "--clear", "--python", sys.executable, str(folder)],
        [*install, "-r", "pyproject.toml", "-c", "requirements.lock"],
    ):
        subprocess.run(command, cwd=ROOT, env=cached, check=True)
    return python


def _run(python: Path, config: Path, *arguments: str) -> tuple[int, Any]:
    """The exit status and the JSON of a command; PATH has no Java."""
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/nowhere", "HOME": str(config.parent)}
    environment["SOURCE_PASSWORD"] = os.environ["SOURCE_PASSWORD"]
    done = subprocess.run(
        [python, "-m", "lakeproof", "--config", str(config), "--json", *arguments],
        cwd=config.parent, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.mark.full
def test_a_host_without_spark_does_all_but_what_a_table_needs_spark_for(
    database: Database, tmp_path: Path, slim: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of every kind are copied (twice), drained, compacted, proven and maintained; rows of two schemas are not."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, repeat('x', g) FROM generate_series(1, 300) g",
        *TABLES,
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    config = tmp_path / "lakeproof.yaml"
    parts = conninfo_to_dict(database.dsn)
    monkeypatch.setenv("SOURCE_PASSWORD", str(parts.pop("password")))
    lines = [
        f"dsn: {make_conninfo(**{k: str(v) for k, v in parts.items() if v is not None})}",
        "password: {env: SOURCE_PASSWORD}",
        "publication: pub",
    ]
    lines += [f"slot: {database.name}", "table:", "  public.kept: {key: [k]}"]
    config.write_text("\n    ".join([f"lake: {tmp_path / 'lake'}\nsources:\n  shop:", *lines]) + "\n", "utf-8")
    installed = subprocess.run(
        [slim, "-c", "import importlib.util as u; print(*(n for n in ('pyspark', 'dagster', 'pandas') if u.find_spec(n)))"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert installed.stdout.split() == []
    for command in (["check"], ["bootstrap"], ["status"]):
        status, document = _run(slim, config, *command)
        assert status == 0, (command, document)
    database.execute("UPDATE t SET v = 'y' WHERE id <= 40", "DELETE FROM t WHERE id > 290", *CHANGES)
    for command in (["drain", "--once"], ["status"]):
        status, document = _run(slim, config, *command)
        assert status == 0, (command, document)
    for command in (["compact"], ["prove"], ["maintain"], ["status"]):
        status, document = _run(slim, config, *command)
        assert status == 0, (command, document)
    database.execute("UPDATE t SET v = 'z' WHERE id = 1")
    for command in (["bootstrap", "--tables", "public.t"], ["drain", "--once"], ["compact"], ["prove"]):
        status, document = _run(slim, config, *command)
        assert status == 0, (command, document)
    database.execute(
        "BEGIN; INSERT INTO t VALUES (1000, 'a'); ALTER TABLE t ADD COLUMN more int;"
        " INSERT INTO t VALUES (1001, 'b', 7); COMMIT"
    )
    status, document = _run(slim, config, "drain", "--once")
    assert status == 0, document
    for _ in range(4):
        # Whoever asks again holds no table for it.
        status, document = _run(slim, config, "compact")
        assert status == 2, document
        assert document["error"]["thing"] == "table public.t"
        assert "Spark has to write it (" in document["error"]["reason"]
        assert "pip install 'lakeproof[spark]'" in document["error"]["remedy"]
    loaded = load(config)
    into_the_lake(loaded, spark)
    proof = prove(loaded, "shop", None, spark)
    assert proof.equal
    assert len(proof.tables) == 6
