"""The command line on one database and its lake, as a person types it; the claims belong to tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from lakeproof.cli.main import main
from tests.support.servers.fix_postgres import Database

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

    def catch_up(self) -> list[int]:
        """Land and apply all that the source has; twice, for what a later reading of the catalog decides. Exit statuses."""
        return [self.run(*line)[0] for line in 2 * (("drain", "shop", "--once"), ("compact",))]

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


def place_of(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """Return a place whose database has one table, which is configured and not published."""
    database.execute(
        "CREATE TABLE items (id int PRIMARY KEY, name text)",
        "INSERT INTO items SELECT n, 'item ' || n FROM generate_series(1, 10) n",
    )
    monkeypatch.setenv(SECRET, str(conninfo_to_dict(database.dsn)["password"]))
    result = Place(database, tmp_path / "lakeproof.yaml", capsys)
    result.configure("tables: [public.items]")
    return result
