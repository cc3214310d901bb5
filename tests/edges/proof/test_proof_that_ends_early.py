"""A proof that is asked to stop, or killed, amid a statement of the server's: neither it nor the statement goes on for long.

A proof whose connection to the server is lost belongs to the copying's tests, which use the same snapshot.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.events import Event, RunControl, Stop
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, table, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

# The waits that end early would be minutes long.
_SOON_S = 90.0
_CLIENT = """
import os
from pydantic import SecretStr
from lakeproof.events import Stop
from lakeproof.postgres.connections.connect import connect_for_long_statements
conn = connect_for_long_statements(SecretStr(os.environ["CLIENTS_DSN"]), "long statement", Stop())
print("connected", flush=True)
conn.execute("SELECT count(*) FROM generate_series(1, 100000000000)")
"""
_WORKING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'long statement' AND state = 'active'"


def test_a_proof_that_is_asked_to_stop_does_not_wait_for_its_statement(database: Database, tmp_path: Path) -> None:
    """A server's wait of minutes ends with the proof; the table is blocked, and the next proof compares it."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY)",
        "INSERT INTO items VALUES (1)",
        "CREATE PUBLICATION pub FOR TABLE items",
    )
    source = database.source()
    patient = source.model_copy(update={"snapshot": source.snapshot.model_copy(update={"lock_timeout_s": 300.0})})
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": patient})
    bootstrap(config, "shop")
    into_the_lake(config)
    stop = Stop()
    with database.connect() as conn:

        def lock(event: Event) -> None:
            """Lock the table when its rows are to be read, and stop the proof while it waits."""
            if event.kind == "prove.progress" and not timers:
                conn.execute("BEGIN")
                conn.execute("LOCK TABLE items")
                timers.append(threading.Timer(1.0, stop.request))
                timers[0].start()

        timers = list[threading.Timer]()
        began_s = time.monotonic()
        proof = prove(config, "shop", None, WITHOUT, RunControl(lock, stop))
    assert timers
    assert time.monotonic() - began_s < _SOON_S
    assert "stop" in (proof.tables[table("items")].reason or "")
    assert wrong_in(proof).keys() == {"items"}
    assert database.value("SELECT count(*) FROM pg_replication_slots WHERE temporary") == 0
    assert wrong_in(prove(config, "shop", None, WITHOUT)) == {}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere old servers can't see that a client has gone")
def test_a_long_statement_ends_soon_after_its_client(database: Database) -> None:
    """The server looks for a killed process, which would otherwise leave a snapshot that holds back VACUUM for hours."""
    environment = {**os.environ, "CLIENTS_DSN": database.dsn}
    with subprocess.Popen([sys.executable, "-c", _CLIENT], stdout=subprocess.PIPE, env=environment) as client:
        try:
            assert client.stdout is not None
            assert client.stdout.readline() == b"connected\n"
            _wait_until(database, working=1)
        finally:
            client.kill()
    _wait_until(database, working=0)


def _wait_until(database: Database, *, working: int) -> None:
    """Wait until so many of the clients' statements are at work."""
    until = time.monotonic() + _SOON_S
    while database.value(_WORKING) != working:
        assert time.monotonic() < until
        time.sleep(0.1)
