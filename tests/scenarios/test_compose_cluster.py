"""The profile `cluster` of docker/compose.yaml, each service's own command as a process: a lake that a proof finds equal.

The images are not built here, and networks, users and limits are not tried.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.sql import SQL

from demo.server import EmbeddedPostgres
from lakeproof.config.load import load
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.compare import lake_rows, source_rows, table_columns
from tests.support.spark.compose_services import DOCKER, WAIT_S, Compose, replaced

TABLES = (TableName("shop", "products"), TableName("shop", "orders"))
SOURCE = "cluster"
_ORDERS = "INSERT INTO shop.orders (product_id, quantity) SELECT 1 + n % 100, 1 + n % 7 FROM generate_series(1, 500) n"
_CHANGES = (
    _ORDERS,
    "UPDATE shop.products SET price = price + 1 WHERE id % 7 = 3",
    "DELETE FROM shop.orders WHERE id % 11 = 5",
)


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    """The sample source: a server with the settings of the file's command."""
    command = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"]["source"]["command"]
    settings = dict(word.removeprefix("-c").split("=") for word in command[1:])
    with EmbeddedPostgres(conf=settings) as started:
        yield started


@pytest.fixture
def compose(server: EmbeddedPostgres, tmp_path: Path) -> Iterator[Compose]:
    """The project, whose source has what the file's script puts there."""
    project = Compose(tmp_path / "project", f"host=127.0.0.1 port={server.port}")
    server.run("createdb", "shop")
    script = (DOCKER / "sample" / "10-shop.sh").read_text(encoding="utf-8")
    secrets = {"/run/secrets": str(project.folder / "secrets")}
    environment = {
        "PATH": f"{server.program('psql').parent}:/usr/bin:/bin",
        "PGHOST": "127.0.0.1",
        "PGPORT": str(server.port),
        "PGPASSWORD": server.password,
        "POSTGRES_DB": "shop",
    }
    subprocess.run(["/bin/sh", "-c", replaced(script, secrets)], env=environment, check=True)
    try:
        yield project
    finally:
        project.down()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.postgres
def test_the_services_keep_a_lake_that_is_proved_equal(
    server: EmbeddedPostgres, compose: Compose, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first copy, a drain and rounds of compaction; both end when they are asked to, in a cycle too; then a proof."""
    status, log = compose.run("drain", "lakeproof", "bootstrap", SOURCE)
    assert status == 0, log
    compose.up("drain")
    change(server)
    compose.up("compact")
    wait_until(compose.services["compact0"].is_healthy, compose)
    lake = _lake(compose, monkeypatch)
    cut = newest_cut(lake)
    assert cut is not None, compose.services["compact0"].log
    assert set(cut.tables) == set(TABLES)
    assert compose.stop("compact") == 0
    # Once more, and asked to end while Spark works.
    change(server)
    before = _applications(compose)
    compose.up("compact")
    wait_until(lambda: _applications(compose) > before, compose)
    assert compose.stop("compact") == 0
    assert _names(lake, lake.paths.intents) == _names(lake, lake.paths.cuts)
    status, log = compose.run("prove")
    assert status == 0, log
    assert compose.services["drain0"].is_healthy(), compose.services["drain0"].log
    assert compose.stop("drain") == 0
    _is_the_source(server, compose, lake)
    _logs_are_clean(compose)


def change(server: EmbeddedPostgres) -> None:
    """Rows of every kind of change."""
    with psycopg.connect(server.dsn("shop"), autocommit=True) as connection:
        for statement in _CHANGES:
            connection.execute(SQL(statement))


def wait_until(condition: Callable[[], bool], compose: Compose) -> None:
    """Wait, as long as each service goes on."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        for name in ("drain0", "compact0"):
            process = compose.services[name].process
            assert process is not None
            assert process.poll() is None, compose.services[name].log
        assert time.monotonic() < deadline, compose.services["compact0"].log
        time.sleep(0.5)


def _lake(compose: Compose, monkeypatch: pytest.MonkeyPatch) -> SourceLake:
    """The lake, by the configuration and the account that the driver has."""
    folder = compose.services["compact0"].folder
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(folder / "secrets" / "aws_credentials"))
    monkeypatch.setenv("AWS_PROFILE", "default")
    return SourceLake.open(load(folder / "app" / "docker" / "sample" / "cluster.yaml").location, SOURCE)


def _applications(compose: Compose) -> int:
    """The number of drivers that have had an executor."""
    logs = (compose.folder / "spark-master0" / "log").read_text(encoding="utf-8", errors="replace")
    return len(set(re.findall(r"Launching executor (app-[\d-]+)/", logs)))


def _is_the_source(server: EmbeddedPostgres, compose: Compose, lake: SourceLake) -> None:
    """The newest cut's rows, read by delta-rs, are the source's."""
    cut = newest_cut(lake)
    assert cut is not None
    dsn = server.dsn("shop")
    access, secret = re.findall(r"key(?:_id)? = (\S+)", compose.secret("aws_credentials"))
    options = {
        "aws_endpoint_url": f"http://{compose.address('7070')}",
        "aws_region": "us-east-1",
        "aws_allow_http": "true",
        "aws_access_key_id": access,
        "aws_secret_access_key": secret,
    }
    actual = {}
    for table in TABLES:
        place = lake.url(lake.paths.current(table)).replace("s3a://", "s3://")
        actual[table] = lake_rows(place, cut.tables[table].current_version, *table_columns(dsn, table), options)
    assert actual == source_rows(dsn, TABLES)


def _logs_are_clean(compose: Compose) -> None:
    """No log has a secret, and no driver had to fall back to an older way of proving that it knows Spark's."""
    secrets = [compose.secret(name) for name in ("shop_password", "spark_secret")]
    for log in compose.folder.glob("*/log"):
        text = log.read_text(encoding="utf-8", errors="replace")
        assert not [secret for secret in secrets if secret in text], log
        assert "Expected SaslMessage" not in text, log


def _names(lake: SourceLake, folder: str) -> set[str]:
    return {key.rpartition("/")[2] for key in lake.store.list(folder) if key.endswith(".json")}
