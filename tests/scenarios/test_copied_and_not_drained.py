"""A table is held, copied, and compacted, and nobody drains: `compact` and `status` name the drain, not another copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import place_of

pytestmark = pytest.mark.postgres


def test_the_way_out_of_a_copied_table_is_a_drain(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Their remedy works as it is printed."""
    place = place_of(database, tmp_path, monkeypatch, capsys)
    database.execute(f"CREATE PUBLICATION {database.name} FOR TABLE items")
    assert [place.run(command)[0] for command in ("bootstrap", "compact")] == [0, 0]
    database.execute("ALTER TABLE items ALTER name TYPE varchar USING upper(name)", "VACUUM FULL items")
    assert place.catch_up() == [0, 1, 0, 1]
    assert "run `lakeproof bootstrap shop --tables public.items`" in place.run("compact")[1]

    database.execute("CREATE TABLE noise (id int)", "INSERT INTO noise SELECT generate_series(1, 100)", "CHECKPOINT")
    assert place.run("bootstrap", "--tables", "public.items")[0] == 0
    status, text = place.run("compact")
    assert status == 1
    remedy = "has come there: run `lakeproof drain shop --once`, then `lakeproof compact shop`"
    assert remedy in text
    assert "lakeproof bootstrap" not in text.split("{")[0]
    assert remedy in place.run("status")[1]

    assert [place.run(*line)[0] for line in (("drain", "shop", "--once"), ("compact", "shop"))] == [0, 0]
    assert place.run("prove", "shop")[0] == 0
