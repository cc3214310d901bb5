"""The commands against a real server: what they say, what they change, and their exit statuses."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lakeproof.cli.main import main
from lakeproof.lsn import Lsn
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

SECRET = "LP_TEST_CLI_PASSWORD"  # the variable's name
_WAIT_S = 90.0


@dataclass(frozen=True)
class Place:
    """A configuration over one database, and the command run on it."""

    database: Database
    file: Path
    capture: pytest.CaptureFixture[str]

    def run(self, *line: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of one command in this process."""
        self.capture.readouterr()
        status = main(["-c", str(self.file), *line])
        captured = self.capture.readouterr()
        password = str(conninfo_to_dict(self.database.dsn)["password"])
        assert f"password={password}" not in captured.out + captured.err
        return status, captured.out, captured.err

    def document(self, *line: str) -> tuple[int, Any]:
        """Exit status and JSON result."""
        status, out, _ = self.run(*line, "--json")
        return status, json.loads(out)

    @property
    def slot(self) -> str:
        """The configured slot."""
        return self.database.name

    def configure(self, **changes: str) -> None:
        """Write the configuration, with lines of the source changed."""
        parts = conninfo_to_dict(self.database.dsn)
        parts.pop("password")
        source = {
            "dsn": json.dumps(psycopg.conninfo.make_conninfo("", **parts)),
            "password": f"{{env: {SECRET}}}",
            "publication": self.database.name,
            "slot": self.database.name,
            "tables": "[public.items, public.log]",
            **changes,
        }
        lines = [f"    {key}: {value}" for key, value in source.items() if value]
        self.file.write_text("\n".join(["lake: lake", "sources:", "  shop:", *lines]) + "\n")


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """Create two tables, one without a key, nothing published."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "CREATE TABLE log (line text)",
        "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 10) n",
        "INSERT INTO log VALUES ('a'), ('b')",
    )
    monkeypatch.setenv(SECRET, str(conninfo_to_dict(database.dsn)["password"]))
    result = Place(database, tmp_path / "lakeproof.yaml", capsys)
    result.configure()
    return result


def begun(place: Place) -> None:
    """Publish and copy."""
    assert place.run("apply")[0] == 0
    assert place.run("bootstrap")[0] == 0


def publications(place: Place) -> set[str]:
    """The tables of each publication."""
    return {name for (name,) in place.database.rows("SELECT pubname::text FROM pg_publication")}


def test_the_journey_from_check_to_teardown(place: Place) -> None:
    """Every command of the source, one after the other, each with status 0."""
    status, out, _ = place.run("plan")
    assert status == 0
    assert "CREATE PUBLICATION" in out
    assert not publications(place)
    status, out, _ = place.run("apply")
    assert status == 0
    assert out.splitlines()[-1] == "done"
    assert place.run("apply")[1].startswith("-- shop: nothing to do")
    status, document = place.document("bootstrap")
    assert status == 0
    assert {name: table["rows"] for name, table in document["tables"].items()} == {"public.items": 10, "public.log": 2}
    place.database.execute("INSERT INTO items VALUES (11, 'new')", "DELETE FROM items WHERE id = 1")
    status, document = place.document("drain", "--once")
    assert status == 0
    counts = document["tables"]["public.items"]
    assert (document["transactions"], counts["inserts"], counts["deletes"]) == (2, 1, 1)
    assert place.run("check")[0] == 0
    status, document = place.document("status")
    shop = document["sources"]["shop"]
    assert status == 0
    assert shop["slot"]["confirmed_flush_lsn"] == shop["landing"]["end_lsn"]
    assert (shop["cut"], set(shop["snapshots"])) == (None, {"public.items", "public.log"})
    assert place.run("teardown", "--yes")[0] == 0
    assert not place.database.slots()
    assert not publications(place)


def test_what_inspect_shows_has_no_values(place: Place) -> None:
    """Manifests and data files are shown without values."""
    begun(place)
    place.database.execute("INSERT INTO items VALUES (11, 'hunter2')")
    assert place.run("drain", "--once")[0] == 0
    landing = place.file.parent / "lake" / "shop" / "landing" / "000001"
    actual = [*landing.glob("data/*.parquet"), *landing.glob("manifests/*.json"), landing]
    assert len(actual) >= 4
    for file in actual:
        status, out, _ = place.run("inspect", str(file))
        assert status == 0
        assert "hunter2" not in out
        assert place.document("inspect", str(file))[0] == 0


def test_a_damaged_segment_is_exit_status_2(place: Place) -> None:
    """The error is one line that names the file."""
    begun(place)
    place.database.execute("INSERT INTO items VALUES (11, 'x')")
    assert place.run("drain", "--once")[0] == 0
    landing = place.file.parent / "lake" / "shop" / "landing" / "000001"
    (file,) = landing.glob("data/*.parquet")
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(bytes(data))
    status, out, err = place.run("inspect", str(landing))
    assert (status, out) == (2, "")
    assert file.name in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", [["check"], ["plan"], ["apply"], ["bootstrap"]])
@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"tables": "[public.items, public.none]"}, "public.none"),
        ({"password": "{env: LP_TEST_CLI_UNSET}"}, "LP_TEST_CLI_UNSET is not set"),
        ({"password": "{env: LP_TEST_CLI_WRONG}"}, "password authentication failed"),
        ({"dsn": '"host=127.0.0.1 port=1 dbname=x"'}, "127.0.0.1"),
    ],
    ids=["no table", "no secret", "wrong password", "no server"],
)
def test_a_source_that_refuses_is_one_line_and_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, command: list[str], changes: dict[str, str], phrase: str
) -> None:
    """Status 2, or 3 if nothing listens; no publication, no slot, no lake."""
    monkeypatch.delenv("LP_TEST_CLI_UNSET", raising=False)
    monkeypatch.setenv("LP_TEST_CLI_WRONG", "hunter2")
    place.configure(**changes)
    status, out, err = place.run(*command)
    assert status == (3 if "port=1" in str(changes) else 2)
    assert phrase in out + err
    assert "hunter2" not in out + err
    assert "Traceback" not in err
    assert not place.database.slots()
    assert not publications(place)
    assert not (place.file.parent / "lake").exists()


@pytest.mark.parametrize("dsn", ["host=127.0.0.1 port=1 dbname=x", "host=/nowhere dbname=x"])
def test_a_server_that_can_not_be_reached_is_status_3_of_every_command(place: Place, dsn: str) -> None:
    """The command can simply be run again: nothing was changed, and nothing has to be."""
    assert place.run("apply")[0] == 0
    assert place.run("bootstrap")[0] == 0
    place.configure(dsn=json.dumps(dsn))
    commands = ("check", "plan", "apply", "bootstrap", "drain --once", "recover --dry-run", "recover", "status")
    for command in (*commands, "teardown --yes"):
        status, out, err = place.run(*command.split())
        assert status == 3, f"{command}: {out}{err}"
        assert "Traceback" not in err
    assert place.database.slots() == {place.slot}


def test_a_role_without_replication_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to grant, and shows no password."""
    parts = conninfo_to_dict(place.database.role())
    monkeypatch.setenv(SECRET, str(parts.pop("password")))
    place.configure(dsn=json.dumps(psycopg.conninfo.make_conninfo("", **parts)))
    status, out, err = place.run("check")
    assert status == 2
    assert "REPLICATION" in out
    assert "its secret" not in out + err


def test_a_slot_of_another_plugin_is_refused_everywhere(place: Place) -> None:
    """The foreign slot still exists afterwards."""
    assert place.run("apply")[0] == 0
    place.database.value("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')::text", (place.slot,))
    for command in (["check"], ["bootstrap"], ["teardown", "--yes"]):
        status, out, err = place.run(*command)
        assert status == 2
        assert "test_decoding" in out + err
    assert place.database.slots() == {place.slot}
    assert publications(place)


def test_a_drain_before_the_first_snapshot_names_the_remedy(place: Place) -> None:
    """The source has no landing yet."""
    assert place.run("apply")[0] == 0
    status, _, err = place.run("drain", "--once")
    assert status == 2
    assert "lakeproof bootstrap" in err


def test_a_slot_that_was_dropped_is_seen_by_status_and_drain(place: Place) -> None:
    """Changes are lost, so nothing goes on as if they were not."""
    begun(place)
    place.database.execute("INSERT INTO items VALUES (11, 'x')")
    place.database.drop_slot(place.slot)
    status, document = place.document("status")
    assert status == 2
    assert any("does not exist" in p["reason"] for p in document["sources"]["shop"]["problems"])
    assert place.run("drain", "--once")[0] == 2
    assert not place.database.slots()


def test_a_slot_that_was_advanced_elsewhere_is_seen_by_status(place: Place) -> None:
    """The slot stands beyond the landing's end."""
    begun(place)
    place.database.execute("INSERT INTO items VALUES (11, 'x')")
    place.database.value("SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())::text", (place.slot,))
    status, document = place.document("status")
    assert status == 2
    assert any("it was moved to" in p["reason"] for p in document["sources"]["shop"]["problems"])
    assert place.run("drain", "--once")[0] == 2


def test_teardown_without_a_terminal_needs_yes(place: Place) -> None:
    """Nothing is dropped by accident."""
    begun(place)
    status, _, err = place.run("teardown")
    assert status == 2
    assert "--yes" in err
    assert place.database.slots() == {place.slot}


@contextmanager
def background(place: Place, *line: str) -> Iterator[subprocess.Popen[str]]:
    """A command in its own process, killed at the end if it still runs."""
    process = subprocess.Popen(
        [sys.executable, "-m", "lakeproof", "-c", str(place.file), *line],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for_reader(place: Place) -> None:
    """Wait until a process reads the slot."""
    deadline = time.monotonic() + _WAIT_S
    while not place.database.value("SELECT active FROM pg_replication_slots WHERE slot_name = %s", (place.slot,)):
        assert time.monotonic() < deadline, "nobody reads the slot"
        time.sleep(0.05)


def wait_until_acknowledged(place: Place, end: Lsn) -> None:
    """Wait until the drain has acknowledged everything up to `end`."""
    query = "SELECT confirmed_flush_lsn >= %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    wait_until(lambda: bool(place.database.value(query, (str(end), place.slot))))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_drain_ends_cleanly_on_a_signal(place: Place, number: signal.Signals) -> None:
    """The drain acknowledges, prints a result and ends with status 0; a signal is its only normal end."""
    begun(place)
    with background(place, "drain", "--json") as process:
        wait_for_reader(place)
        place.database.execute("INSERT INTO items VALUES (11, 'x')")
        wait_until_acknowledged(place, place.database.end_of_wal())
        process.send_signal(number)
        out, err = process.communicate(timeout=_WAIT_S)
    document = json.loads(out)
    assert process.returncode == 0, err
    assert (document["reason_for_end"], document["rows"]) == ("stopped", 1)
    assert all(json.loads(line)["event"].startswith("drain.") for line in err.splitlines())
    _, seen = place.document("status")
    assert seen["sources"]["shop"]["slot"]["confirmed_flush_lsn"] == document["end_lsn"]


def test_once_beside_a_running_drain_waits_for_what_that_lands(place: Place) -> None:
    """Teardown leaves a slot in use alone, unless asked to end its reader."""
    begun(place)
    # Ten rows end a segment, and no time does: the first one lands once somebody waits for it.
    place.configure(drain="{flush_rows: 10, flush_interval_s: 600}")
    with background(place, "drain") as process:
        wait_for_reader(place)
        place.database.execute("INSERT INTO items VALUES (11, 'x')")
        with background(place, "drain", "--once", "--json") as once:
            assert once.stderr is not None
            assert any('"drain.follow"' in line for line in once.stderr)
            place.database.execute("INSERT INTO items SELECT n, 'y' FROM generate_series(12, 30) n")
            out, _ = once.communicate(timeout=_WAIT_S)
        assert (once.returncode, json.loads(out)["reason_for_end"]) == (0, "followed")
        status, _, err = place.run("teardown", "--yes")
        assert status == 3
        assert "in use" in err
        assert place.database.slots() == {place.slot}
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_WAIT_S)
    assert place.run("teardown", "--yes")[0] == 0
