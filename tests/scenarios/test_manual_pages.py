"""The pages that a newcomer types from are typed: each command, statement and program of them, in their order.

They run as they stand, but for the address of the server. Commands on the other pages are parsed
(`tests/core/project/test_manual_commands.py`).
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from demo.server import EmbeddedPostgres
from scripts.fetch.readers import fetch
from tests.support.pages.manual_blocks import ROOT, Block, blocks, lines
from tests.support.servers.fix_postgres import MakeServer

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow, pytest.mark.full]

_ADDRESS = "host=db.example.org"
# They fetch and install what is being tested here.
_NOT_RUN = ("git ", "make ", "pip ")
_STATUS = re.compile(r"# exit status (\d)")
# A start of Spark takes minutes on a machine that is busy.
_TIMEOUT_S = 1800.0


class _Reader:
    """Somebody with a shell, an editor and psql."""

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        self._server = server
        self._folder = folder
        programs = folder / "bin"
        programs.mkdir()
        (programs / "lakeproof").write_text(f'#!/bin/sh\nexec {sys.executable} -m lakeproof "$@"\n')
        (programs / "lakeproof").chmod(0o755)
        # The superuser's, as psql would find it in a person's home.
        passwords = folder / "pgpass"
        passwords.write_text(f"*:*:*:postgres:{conninfo_to_dict(server.dsn())['password']}\n")
        passwords.chmod(0o600)
        self._environment = {
            **os.environ,
            "PATH": f"{programs}:{server.program('psql').parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}:{fetch()}",
            "PGPASSFILE": str(passwords),
        }
        self.output: dict[str, str] = {}

    def types(self, block: Block) -> None:
        """Do what a block says."""
        text = block.text.replace(_ADDRESS, f"host=127.0.0.1 port={self._server.port}")
        first = text.partition("\n")[0]
        if re.fullmatch(r"(#|--) [\w.]+\.(yaml|sql)", first):
            (self._folder / first.split()[1]).write_text(text)
        elif block.language == "sql":
            self._statements(text)
        elif block.language == "python":
            self._runs([sys.executable, "-c", text], str(block), 0)
        elif block.language == "sh":
            for number, line in lines(text):
                self._line(line, f"{block.page}:{block.line + number}")

    def _line(self, line: str, place: str) -> None:
        if line.startswith(_NOT_RUN):
            return
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._environment[name] = value.strip("'")
            return
        status = _STATUS.search(line)
        shell = ["bash", "-o", "pipefail", "-c", line.replace("demo/shop.sql", str(ROOT / "demo" / "shop.sql"))]
        self._runs(shell, f"{place}: {line}", int(status[1]) if status else 0)

    def _runs(self, command: list[str], place: str, status: int) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == status, f"{place}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, f"{place}\n{done.stderr}"
        self.output[place.partition(": ")[2] or place] = done.stdout

    def _statements(self, text: str) -> None:
        with psycopg.connect(self._server.dsn("shop"), autocommit=True) as conn:
            for statement in re.split(r";\s*$", text, flags=re.MULTILINE):
                if statement.strip():
                    conn.execute(statement.encode())


@pytest.fixture
def shop(make_server: MakeServer) -> Iterator[EmbeddedPostgres]:
    """A server with an empty database `shop`, and no roles but the superuser and the one that makes tables."""
    with make_server() as server:
        with psycopg.connect(server.dsn(), autocommit=True) as conn:
            conn.execute("CREATE DATABASE shop")
            conn.execute("CREATE ROLE shop_owner")
        yield server


def _read(page: str, server: EmbeddedPostgres, folder: Path) -> _Reader:
    reader = _Reader(server, folder)
    for block in blocks("sh", "sql", "yaml", "python", page=page):
        reader.types(block)
    return reader


def _proofs(reader: _Reader) -> list[str]:
    """Return the result of each proof, the first line of each table of it being a table's."""
    return [text for line, text in reader.output.items() if line.startswith("lakeproof prove")]


def test_the_first_screen_ends_with_a_query(shop: EmbeddedPostgres, tmp_path: Path) -> None:
    """The lines of README, from a role to rows in DuckDB; then those of the page about other tools, in one program."""
    _orders_and_visits(shop)
    reader = _read("README.md", shop, tmp_path)
    (proof,) = _proofs(reader)
    assert re.search(r"^public\.orders +1,000 +1,000 +\S+ +yes$", proof, re.MULTILINE), proof
    (counted,) = [text for place, text in reader.output.items() if place.startswith("README.md")]
    assert re.search(r"\b1000\b", counted), counted
    page = "docs/how-to/read-from-other-tools.md"
    reader.types(Block(page, 1, "python", "\n".join(block.text for block in blocks("python", page=page))))
    printed = re.findall(r"\b1000\b", reader.output[f"{page}:1"])
    assert printed == ["1000"] * 6, reader.output[f"{page}:1"]


def test_the_first_hour_ends_with_a_proof(shop: EmbeddedPostgres, tmp_path: Path) -> None:
    """A database with two tables, one of them without a key, is copied, followed, proved and read as the page says."""
    _orders_and_visits(shop)
    reader = _read("docs/first-hour.md", shop, tmp_path)
    (proof,) = _proofs(reader)
    assert re.search(r"^public\.orders +1,000 +1,000 +\S+ +yes$", proof, re.MULTILINE), proof
    assert re.search(r"^public\.visits +50 +50 +\S+ +yes$", proof, re.MULTILINE), proof
    _nothing_is_left(shop)


def test_the_tutorial_ends_with_equal_tables(shop: EmbeddedPostgres, tmp_path: Path) -> None:
    """Changes, a new column, a table that is held and comes back: as the page says, and equal at each proof."""
    reader = _read("docs/tutorial.md", shop, tmp_path)
    assert "shop.products" in reader.output["lakeproof compact      # exit status 1: shop.products is held"]
    proof = _proofs(reader)[-1]
    for table, rows in (("customers", 100), ("orders", 499), ("order_lines", 499), ("products", 20)):
        assert re.search(rf"^shop\.{table} +{rows} +{rows} +\S+ +yes$", proof, re.MULTILINE), proof
    _nothing_is_left(shop)


def _orders_and_visits(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn("shop"), autocommit=True) as conn:
        conn.execute("CREATE TABLE orders (id bigint PRIMARY KEY, total numeric(10, 2), note jsonb)")
        conn.execute("INSERT INTO orders SELECT n, n * 1.5, '{}' FROM generate_series(1, 1000) n")
        conn.execute("CREATE TABLE visits (page text)")
        conn.execute("INSERT INTO visits SELECT 'page ' || n FROM generate_series(1, 50) n")


def _nothing_is_left(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.dsn("shop"), autocommit=True) as conn:
        left = conn.execute("SELECT slot_name FROM pg_replication_slots UNION ALL SELECT pubname FROM pg_publication")
        assert left.fetchall() == []
