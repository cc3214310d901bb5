"""A table is published, and no copy of it is made: the slip after `plan | psql`. Whoever looks is shown it.

So is a table whose rows have landed and whose entry waits, a slot that is gone beside its landing, and a lake's path with a
slip in it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

import lakeproof
from lakeproof.cli.main import main
from lakeproof.errors import LakeError
from tests.fix_postgres import Database

pytestmark = pytest.mark.postgres
SECRET = "LP_TEST_ABSENT_PASSWORD"  # the variable's name


@dataclass(frozen=True)
class Place:
    """A configuration over one database, and the commands run on it."""

    database: Database
    file: Path
    capture: pytest.CaptureFixture[str]

    def run(self, *line: str) -> tuple[int, str]:
        """Return exit status and output of one command in this process."""
        self.capture.readouterr()
        status = main(["-c", str(self.file), *line])
        captured = self.capture.readouterr()
        return status, captured.out + captured.err

    def document(self, *line: str) -> tuple[int, Any]:
        """Return exit status and JSON result."""
        self.capture.readouterr()
        status = main(["-c", str(self.file), *line, "--json"])
        return status, json.loads(self.capture.readouterr().out)

    def lacking(self) -> tuple[int, Any]:
        """Return the exit status of `status`, and what it names as lacking."""
        status, document = self.document("status")
        return status, document["sources"]["shop"]["shortfall"]

    def configure(self, *lines: str) -> None:
        """Write the configuration, with these lines of the source."""
        parts = conninfo_to_dict(self.database.dsn)
        parts.pop("password")
        source = {
            "dsn": json.dumps(psycopg.conninfo.make_conninfo("", **parts)),
            "password": f"{{env: {SECRET}}}",
            "publication": self.database.name,
            "slot": self.database.name,
        }
        texts = [*(f"{key}: {value}" for key, value in source.items()), *lines]
        self.file.write_text(
            "\n".join(["lake: lake", "sources:", "  shop:", *(f"    {text}" for text in texts)]) + "\n"
        )


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """Create one table; nothing is published."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 10) n",
    )
    monkeypatch.setenv(SECRET, str(conninfo_to_dict(database.dsn)["password"]))
    result = Place(database, tmp_path / "lakeproof.yaml", capsys)
    result.configure("tables: [public.items]")
    return result


def begun(place: Place) -> None:
    """Publish and copy."""
    assert place.run("apply")[0] == 0
    assert place.run("bootstrap")[0] == 0
    assert place.run("status")[0] == 0


@pytest.mark.parametrize("is_configured", [True, False])
def test_a_table_that_is_published_and_never_copied_is_named(place: Place, is_configured: bool) -> None:
    """`status`, `check` and `plan` name it, with the remedy, and the first two end with 1; a copy ends that."""
    begun(place)
    if is_configured:
        place.configure("tables: [public.items, public.notes]")
    place.database.execute(
        "CREATE TABLE notes (id int PRIMARY KEY, v text)",
        "INSERT INTO notes VALUES (1, 'before it was published')",
        f"ALTER PUBLICATION {place.database.name} ADD TABLE notes",
        "UPDATE notes SET v = 'since' WHERE id = 1",
    )
    assert place.run("drain", "--once")[0] == 0
    reason = "it is published and not in the lake, since no copy of it was made"
    remedy = "run `lakeproof bootstrap shop --tables public.notes`"
    status, lacking = place.lacking()
    assert (status, list(lacking["absent"])) == (1, ["public.notes"])
    for command, expected in (("status", 1), ("check", 1), ("plan", 0)):
        status, text = place.run(command)
        assert (status, reason in text, remedy in text) == (expected, True, True), (command, text)
    assert place.run("bootstrap", "--tables", "public.notes")[0] == 0
    assert place.lacking()[1]["absent"] == {}
    assert [place.run(command)[0] for command in ("status", "check", "plan")] == [0, 0, 0]


def test_a_slot_that_is_gone_beside_its_landing_is_an_error(place: Place) -> None:
    """After `teardown` and a new publication `check` and `status` name `recover`, which works; nothing is called ready."""
    assert "it does not exist yet; `lakeproof bootstrap` makes it" in place.run("check")[1]
    begun(place)
    assert place.run("teardown", "--yes")[0] == 0
    assert place.run("apply")[0] == 0
    for command in ("check", "status"):
        status, text = place.run(command)
        assert status == 2, text
        assert "it does not exist; the landing ends at" in text
        assert "run `lakeproof recover`" in text
        assert ", ready" not in text
    assert place.run("recover")[0] == 0
    assert place.run("check")[0] == 0


def test_a_lake_that_is_nowhere_is_an_error_of_its_path(place: Place, tmp_path: Path) -> None:
    """Reading, and the commands that need a landing, name the place; those that may come first do not refuse it."""
    with pytest.raises(LakeError, match=r"lakee: there is no lake in this place; correct its path"):
        lakeproof.read(tmp_path / "lakee")
    for command in (("compact", "shop"), ("drain", "shop", "--once"), ("prove", "shop")):
        status, text = place.run(*command)
        assert status == 2
        assert (
            "there is no lake in this place; correct `lake` of the configuration, or run `lakeproof bootstrap" in text
        )
    assert place.run("apply")[0] == 0
    assert place.run("status")[0] == 0
