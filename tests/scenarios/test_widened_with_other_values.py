"""Columns get wider types, of one table by an expression (USING): neither stream nor catalog has a trace of it.

So a table that was equal counts as not compared from then on, until a proof says whether it still is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.names import TableName
from lakeproof.state.due import due_proofs
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import place_of

pytestmark = pytest.mark.postgres


def test_a_widened_table_is_lacking_until_it_is_compared(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plain one is equal and the other one differs; a repair puts its values right, and `status` ends with 0."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    tables = [TableName("public", name) for name in ("items", "plain", "prices")]
    database.execute(
        "CREATE TABLE plain (id int PRIMARY KEY, amount int, weight real)",
        "INSERT INTO plain SELECT n, n, n FROM generate_series(1, 20) n",
        "CREATE TABLE prices (id int PRIMARY KEY, amount int, note text)",
        "INSERT INTO prices SELECT n, n FROM generate_series(1, 20) n",
        f"CREATE PUBLICATION {database.name} FOR TABLE items, plain, prices",
    )
    # A scheduled proof has room for the small tables and one more; each of these is larger than a small one.
    place.configure("tables: [public.items, public.plain, public.prices]", "proof_rows: 10")
    assert [place.run(*line)[0] for line in (("bootstrap",), ("compact",), ("prove", "shop"), ("status",))] == [0] * 4

    database.execute(
        "ALTER TABLE plain ALTER amount TYPE bigint, ALTER weight TYPE double precision",
        "ALTER TABLE prices ALTER amount TYPE bigint USING amount * 100",
        "UPDATE items SET name = 'other' WHERE id = 1",
    )
    assert place.catch_up() == [0] * 4
    status, lacking = place.lacking()
    assert (status, lacking["widened"]) == (1, {"public.plain": ["amount", "weight"], "public.prices": ["amount"]})
    text = place.run("status")[1]
    assert "public.prices: amount got a wider type since it was compared, and with USING perhaps other values;" in text
    assert "run `lakeproof prove shop --tables public.prices --repair`" in text
    assert due_proofs(load(place.file), "shop", ()).tables == tables

    assert place.run("prove", "shop", "--tables", "public.plain")[0] == 0
    assert place.lacking()[1]["widened"] == {"public.prices": ["amount"]}
    status, text = place.run("prove", "shop", "--tables", "public.prices", "--repair")
    assert status == 0, text
    status, lacking = place.lacking()
    assert (status, lacking["widened"], lacking["differing"]) == (0, {}, {})
    assert place.run("prove", "shop")[0] == 0
