"""A snapshot of very many small tables: no connection, document or second for each. Work is counted."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig, SourceConfig
from lakeproof.events import Event
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.servers.fix_proxy import Proxy

pytestmark = [pytest.mark.postgres, pytest.mark.slow]
CONNECTIONS = 2


@pytest.mark.parametrize("number", [300, pytest.param(10_000, marks=pytest.mark.full)])
def test_the_work_does_not_grow_with_the_number_of_tables(drained: Drained, proxy: Proxy, number: int) -> None:
    """A handful of connections, a document every two seconds, files for tables with rows alone; each table is there."""
    for first in range(0, number, 1000):
        drained.database.execute(
            "CREATE OR REPLACE PROCEDURE make(first int, last int) LANGUAGE plpgsql AS $$BEGIN"
            "  FOR i IN first..last LOOP"
            "    EXECUTE format('CREATE TABLE t%s (id int PRIMARY KEY, v text)', i);"
            "    IF i % 10 = 0 THEN EXECUTE format('INSERT INTO t%s VALUES (%s, NULL)', i, i); END IF;"
            "  END LOOP; END$$",
        )
        with drained.database.connect() as conn:
            conn.execute("CALL make(%s, %s)", [first, min(first + 999, number - 1)])
    source = SourceConfig(
        name=SOURCE,
        dsn=SecretStr(proxy.dsn(drained.dsn)),
        publication=SOURCE,
        slot=drained.slot,
        snapshot=SnapshotConfig(connections=CONNECTIONS),
    )
    config = Config(path=drained.lake / "lakeproof.yaml", lake=str(drained.lake), sources={SOURCE: source})
    events: list[Event] = []
    report = bootstrap(config, SOURCE, None, events.append)
    assert report.tables.keys() == {TableName("public", f"t{i}") for i in range(number)}
    assert sum(table.rows for table in report.tables.values()) == number // 10
    # The first look, the slot's, the catalog's at its point and its rules, a look before and one after, the comments, the
    # copying ones.
    assert proxy.connections <= 7 + CONNECTIONS
    assert len(list(drained.lake.rglob("*.parquet"))) == number // 10
    seconds = max(event.fields["seconds"] for event in events if event.kind == "bootstrap.table")
    assert len(list(drained.lake.rglob("snapshot-*.json"))) <= 2 + (seconds + number * 0.1) / 2
