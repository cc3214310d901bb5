"""A source of 200 real tables: what a location reads when it loads, and a sensor at each tick, does not grow with them.

Seconds are measured by `bench/pipeline/many_assets.py`. What is counted here is what the operating system was asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.changes import DrainRun
from assets.support.engine_call import end_soon
from assets.support.pace import EVENTS_PER_S
from bench.pipeline.many_assets import create_tables
from demo.server import EmbeddedPostgres
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from orchestration.build import build
from resources import Settings
from tests.support.servers.fix_postgres import Database, new_database
from tests.support.shell.sample import password_of, write_source

pytestmark = pytest.mark.postgres

MANY = 200
FEW = 4
ROOT = Path(__file__).resolve().parents[3]
_REST = """\
    tables: [shop.*]
"""


# Their import takes longer than everything that a location of 200 tables is made of.
_NOT_LOADED = {"delta", "great_expectations", "numba", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "sqlglot"}
_LOADED = """
import json, sys
from pathlib import Path
import dagster as dg
from orchestration.location import location
from resources import Settings

definitions = location(Path(sys.argv[1]))
keys = len(definitions.resolve_asset_graph().get_all_asset_keys())
with dg.DagsterInstance.local_temp(sys.argv[2]) as instance:
    for name in ("shop_slot_drain_sensor", "shop_compaction_sensor"):
        resources = {"settings": Settings(config_path=sys.argv[1])}
        with dg.build_sensor_context(instance=instance, definitions=definitions, resources=resources) as context:
            tick = definitions.resolve_sensor_def(name).evaluate_tick(context)
            assert len(tick.run_requests or ()) == 1, tick.skip_message
print(json.dumps({"assets": keys, "modules": sorted({name.partition(".")[0] for name in sys.modules})}))
"""


@dataclass
class Asked:
    """The files that were opened below a folder, and the connections that were made, while `on`."""

    folder: str = ""
    on: bool = False
    counts: Counter[str] = field(default_factory=Counter)

    def hear(self, event: str, details: tuple[Any, ...]) -> None:
        """Count one event of Python's audit."""
        if self.on and event == "open" and str(details[0]).startswith(self.folder):
            self.counts["files"] += 1
        elif self.on and event in {"os.listdir", "os.scandir"} and str(details[0]).startswith(self.folder):
            self.counts["listings"] += 1


_ASKED = Asked()


@contextmanager
def _counted(folder: Path) -> Iterator[Counter[str]]:
    """The counts of what is done inside."""
    _ASKED.folder, _ASKED.counts, _ASKED.on = str(folder), Counter(), True
    try:
        yield _ASKED.counts
    finally:
        _ASKED.on = False


@pytest.fixture(scope="module", autouse=True)
def _listening() -> None:
    # Python has no way to take a hook away again; it counts nothing outside of `_counted`.
    sys.addaudithook(_ASKED.hear)


@pytest.fixture(scope="module")
def sources(
    postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[int, tuple[Path, Database]]]:
    """Configurations with few and with many tables, each with its first copy."""
    with new_database(postgres) as few, new_database(postgres) as many, pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", password_of(few))
        result = {}
        for number, database in ((FEW, few), (MANY, many)):
            create_tables(database.dsn, number)
            config = write_source(tmp_path_factory.mktemp("lake"), database, _REST)
            bootstrap(load(config), "shop")
            result[number] = config, database
        yield result


def test_a_location_reads_as_few_files_for_many_tables_as_for_few(sources: dict[int, tuple[Path, Database]]) -> None:
    """Every table is there in every layer; the lake was asked for the same files."""
    asked = {}
    for number, (config, _) in sources.items():
        with _counted(config.parent) as counts:
            definitions = build(load(config))
        keys = definitions.resolve_asset_graph().get_all_asset_keys()
        for layer in ("postgres", "snapshot", "changes", "history", "current"):
            assert sum(key.path[0] == layer for key in keys) == number
        asked[number] = dict(counts)
    assert asked[FEW]["files"] > 0
    assert asked[MANY] == asked[FEW]


def test_a_step_has_what_orders_it_and_no_copy_of_its_assets(sources: dict[int, tuple[Path, Database]]) -> None:
    """Dagster looks at every input and output in every job; only copies can be chosen by table, so each has an input."""
    config, _ = sources[MANY]
    graph = build(load(config)).resolve_asset_graph()
    inputs = {}
    for layer in ("snapshot", "changes", "current", "proof"):
        key = next(key for key in graph.get_all_asset_keys() if key.path[0] == layer)
        node = graph.get(key).assets_def.node_def
        inputs[layer] = len(node.input_defs)
        assert not any(output.metadata or output.description for output in node.output_defs)
    assert inputs == {"snapshot": 0, "changes": 1, "current": MANY + 1, "proof": 1}


@pytest.mark.parametrize("name", ["shop_slot_drain_sensor", "shop_compaction_sensor"])
def test_a_tick_reads_as_few_files_for_many_tables_as_for_few(
    sources: dict[int, tuple[Path, Database]], name: str, tmp_path: Path
) -> None:
    """A sensor asks for one run, whatever the number of tables."""
    asked = {}
    for number, (config, _) in sources.items():
        definitions, settings = build(load(config)), Settings(config_path=str(config))
        sensor = definitions.resolve_sensor_def(name)
        folder = tmp_path / str(number)
        folder.mkdir()
        with (
            dg.DagsterInstance.local_temp(str(folder)) as instance,
            dg.build_sensor_context(
                instance=instance, definitions=definitions, resources={"settings": settings}
            ) as context,
            _counted(config.parent) as counts,
        ):
            tick = sensor.evaluate_tick(context)
        assert len(tick.run_requests or ()) == 1, tick.skip_message
        asked[number] = dict(counts)
    assert asked[FEW]["files"] > 0
    assert asked[MANY] == asked[FEW]


def test_neither_a_location_nor_a_tick_loads_spark_arrow_or_compiled_loops(
    sources: dict[int, tuple[Path, Database]], tmp_path: Path
) -> None:
    """They are imported where rows are read or written: in a run."""
    config, _ = sources[FEW]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOADED, str(config), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert loaded["assets"] > 5 * FEW
    assert _NOT_LOADED.isdisjoint(loaded["modules"]), _NOT_LOADED & {*loaded["modules"]}


@pytest.mark.full
def test_a_drain_of_many_tables_writes_a_bounded_number_of_events(
    sources: dict[int, tuple[Path, Database]], tmp_path: Path
) -> None:
    """Each table has one of its copy, one before any change or at its first, and one at the end; besides one a second.

    No change is missing.
    """
    config, database = sources[MANY]
    rounds, job = 24, build(load(config)).resolve_job_def("shop_drain")
    began_s = time.monotonic()

    def change() -> None:
        for number in range(1000, 1000 + rounds):
            database.execute(*(f"INSERT INTO shop.t{n:03} (id, name) VALUES ({number}, 'n')" for n in range(MANY)))  # noqa: S608  a test's tables
            time.sleep(0.5)
        time.sleep(2)
        end_soon()

    options = dg.RunConfig(ops={"drain_shop": DrainRun(until="max_seconds", max_seconds=600, event_seconds=1)})
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        changing = threading.Thread(target=change)
        changing.start()
        result = job.execute_in_process(instance=instance, run_config=options)
        changing.join()
        assert result.success, "it was asked to end, and not terminated"
        events = result.get_asset_materialization_events()
    inserts: dict[str, Any] = {}
    for event in events:
        table = event.materialization.asset_key.path[-1]
        metadata: dict[str, Any] = {name: value.value for name, value in event.materialization.metadata.items()}
        if event.materialization.asset_key.path[0] == "changes":
            inserts[table] = inserts.get(table, 0) + metadata["inserts"]
    assert inserts == dict.fromkeys((f"t{n:03}" for n in range(MANY)), rounds)
    assert 3 * MANY <= len(events) <= 4 * MANY + (time.monotonic() - began_s) * EVENTS_PER_S
