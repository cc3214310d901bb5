"""Measures how long Dagster's location of a source with many real tables takes to load, and a sensor's tick.

Counting what both read does not belong here (`tests/shell/location/test_many_tables.py`). Seconds of CPU are printed
beside those of the clock: other processes of the machine change the first much less.

    python -m bench.pipeline.many_assets --tables 1000
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import psycopg
from psycopg.sql import SQL, Identifier

from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load

_COLUMNS = SQL(
    "id int PRIMARY KEY, name text NOT NULL, amount numeric(12,2), changed timestamptz, place varchar(40), "
    "number bigint, note text, flags int, day date, more jsonb"
)
_CONFIG = """\
lake: lake
sources:
  shop: {dsn: {env: MANY_ASSETS_DSN}, publication: pub, slot: many, tables: [shop.*]}
"""
_MEASURED = """
import sys, tempfile, time
from pathlib import Path
def passed():
    global wall, cpu
    now = time.monotonic(), time.process_time()
    text = f"{now[0] - wall:.2f} s, CPU {now[1] - cpu:.2f} s"
    wall, cpu = now
    return text
wall, cpu = time.monotonic(), time.process_time()
import dagster as dg
from dagster._core.remote_representation.external_data import RepositorySnap
print("import of Dagster alone:", passed())
from orchestration.location import location
from resources import Settings
print("import of lakeproof and its half of Dagster:", passed())
definitions = location(Path(sys.argv[1]))
print("assets, jobs, sensors and schedules:", passed())
keys = definitions.resolve_asset_graph().get_all_asset_keys()
# As a code server does.
RepositorySnap.from_def(definitions.get_repository_def(), defer_snapshots=True)
print(f"Dagster's own work on {len(keys)} assets:", passed())
settings = Settings(config_path=sys.argv[1])
with dg.DagsterInstance.local_temp(tempfile.mkdtemp()) as instance:
    for name in ("shop_slot_drain_sensor", "shop_compaction_sensor"):
        sensor = definitions.resolve_sensor_def(name)
        for attempt in ("first", "next"):
            with dg.build_sensor_context(
                instance=instance, definitions=definitions, resources={"settings": settings}
            ) as context:
                passed()
                sensor.evaluate_tick(context)
                print(f"{attempt} tick of {name}:", passed())
"""


def create_tables(dsn: str, number: int, rows: int = 10) -> None:
    """Create the tables `shop.t000` and so on with some rows, and the publication `pub` of all of them."""
    with psycopg.connect(dsn) as conn:
        conn.execute("CREATE SCHEMA shop")
        for n in range(number):
            table = Identifier("shop", f"t{n:03}")
            conn.execute(SQL("CREATE TABLE {} ({})").format(table, _COLUMNS))
            insert = SQL("INSERT INTO {} (id, name, amount) SELECT i, 'n', i FROM generate_series(1, {}) AS i")
            conn.execute(insert.format(table, rows))
        conn.execute("CREATE PUBLICATION pub FOR ALL TABLES")


def main() -> int:
    """Copy the tables once, then measure in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", type=int, default=1000)
    number = parser.parse_args().tables
    with EmbeddedPostgres(conf={"fsync": "off"}) as server, tempfile.TemporaryDirectory() as folder:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("CREATE DATABASE shop")
        create_tables(server.dsn("shop"), number)
        config = Path(folder) / "lakeproof.yaml"
        config.write_text(_CONFIG, encoding="utf-8")
        os.environ["MANY_ASSETS_DSN"] = server.dsn("shop")
        bootstrap(load(config), "shop")
        return subprocess.call([sys.executable, "-W", "ignore", "-c", _MEASURED, str(config)])


if __name__ == "__main__":
    sys.exit(main())
