"""A run whose Spark works elsewhere leaves the events in Dagster that a run with Spark in its own process leaves.

What a command without Spark does elsewhere is in `test_compute_command.py`.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from psycopg.sql import SQL, Literal
from pyspark.sql import SparkSession

from lakeproof.commands.drain import drain
from lakeproof.config.load import load
from lakeproof.drain.until import Until
from lakeproof.failpoints import VARIABLE
from orchestration.build import build
from tests.support.servers.fix_postgres import Database
from tests.support.shell.elsewhere import HERE
from tests.support.shell.launched import Dagster, dagster
from tests.support.shell.sample import password_of, write_source
from tests.support.shell.shared_spark import SharedSpark

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]

_REST = """\
    buckets: 16
    tables: [shop.orders, 'shop."order lines"']
    table:
      shop.orders:
        expectations:
          - {type: expect_column_values_to_be_unique, kwargs: {column: id}}
          - {type: expect_column_values_to_be_between, kwargs: {column: amount, min_value: 8}, severity: warn}
views:
  total:
    sql: total.sql
    reads: {orders: shop/shop.orders}
"""
_JOBS = ("shop_compaction", "views_refresh", "shop_maintenance")
# A position, a time, a cut or the process of a proof's own, which a second proof can't have.
_OF_A_PROOF = ("lsn", "_at", "cut", "data_version", "recorded_by")
# A document has the time at which it was written, in digits that may be fewer; the data version is Dagster's, of the run.
_OF_MAINTENANCE = ("bytes", "data_version")


class JavaChildren(threading.Thread):
    """Watches which Python processes below this one have a Java child, until `seen` is asked for: the drivers of Spark."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self._parents: set[str] = set()
        self.start()

    def run(self) -> None:
        while not self._ended.wait(0.2):
            for process in Path("/proc").glob("[0-9]*"):
                with suppress(OSError, ValueError):
                    parent = _parent_of(process.name)
                    is_driver = _name_of(process.name) == "java" and _name_of(parent).startswith("python")
                    if is_driver and _is_below_this(parent):
                        line = Path("/proc", parent, "cmdline").read_bytes().replace(b"\0", b" ").decode()
                        # A process that has just ended has an empty one.
                        self._parents |= {line} - {""}

    def seen(self) -> set[str]:
        """Return the command lines of the parents."""
        self._ended.set()
        self.join()
        return self._parents


def _name_of(process: str) -> str:
    return Path("/proc", process, "comm").read_text(encoding="utf-8").strip()


def _parent_of(process: str) -> str:
    return Path("/proc", process, "stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]


def _is_below_this(process: str) -> bool:
    """True for a child of this process, a child's child and so on, not for the process itself."""
    while process not in ("0", "1"):
        process = _parent_of(process)
        if process == str(os.getpid()):
            return True
    return False


def _events(instance: dg.DagsterInstance, run_id: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What a run has reported: the metadata of each asset and check, with data version, colour and words."""
    reported: dict[tuple[str, str], dict[str, Any]] = {}
    for record in instance.all_logs(run_id):
        event = record.dagster_event
        if event is not None and event.is_step_materialization:
            done = event.step_materialization_data.materialization
            version = (done.tags or {}).get("dagster/data_version")
            reported[str(done.asset_key), ""] = {**_plain(done.metadata), "data_version": version}
        elif event is not None and event.event_type_value == "ASSET_CHECK_EVALUATION":
            check: Any = event.event_specific_data
            colour = {"passed": check.passed, "severity": str(check.severity), "description": check.description}
            reported[str(check.asset_key), check.check_name] = {**_plain(check.metadata), **colour}
    return reported


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.value for name, value in metadata.items()}


def _without(events: Mapping[Any, Mapping[str, Any]], parts: tuple[str, ...]) -> dict[Any, dict[str, Any]]:
    """The events, without the values whose names have one of the parts; the names stay."""
    return {
        key: {
            name: "" if any(part in name for part in parts) else _without_position(value)
            for name, value in values.items()
        }
        for key, values in events.items()
    }


def _without_position(value: Any) -> Any:
    """A description of a check names the position at which it was made."""
    return re.sub(r"\b[0-9A-F]+/[0-9A-F]+\b", "", value) if isinstance(value, str) else value


def _differences(one: Mapping[Any, Mapping[str, Any]], other: Mapping[Any, Mapping[str, Any]]) -> dict[Any, Any]:
    """What differs, by event and name, with both values."""
    pairs = {key: (one.get(key, {}), other.get(key, {})) for key in one.keys() | other.keys()}
    return {
        (key, name): (a.get(name), b.get(name))
        for key, (a, b) in pairs.items()
        for name in a.keys() | b.keys()
        if name not in a or name not in b or a[name] != b[name]
    }


@contextmanager
def _two_places(source: Database, folder: Path) -> Iterator[tuple[Path, Path]]:
    """Two configurations of the same source, each with a lake of its own: the second one's Spark works elsewhere."""
    paths = []
    for name, compute in (("here", ""), ("elsewhere", f"compute: {{command: {HERE}}}\n")):
        (folder / name).mkdir()
        (folder / name / "total.sql").write_text("SELECT count(*) AS n, sum(amount) AS amount FROM orders\n")
        paths.append(write_source(folder / name, source, _REST + compute))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", password_of(source))
        yield paths[0], paths[1]


def _run_here(config: Path, spark: SharedSpark, instance: dg.DagsterInstance, job: str) -> str:
    definition = build(load(config)).resolve_job_def(job)
    resources = {"compute": spark} if "compute" in definition.required_resource_keys else None
    done = definition.execute_in_process(instance=instance, resources=resources)
    assert done.success
    return str(done.run_id)


def _copy_lake(config: Path, to: Path) -> None:
    shutil.rmtree(to.parent / "lake", ignore_errors=True)
    shutil.copytree(config.parent / "lake", to.parent / "lake")


def test_metadata_checks_and_versions_are_the_same(database: Database, spark: SparkSession, tmp_path: Path) -> None:
    """Compaction, views, maintenance, proofs and expectations; and Dagster's process never is Spark's driver."""
    database.execute(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.orders (id int PRIMARY KEY, amount numeric(8, 2) NOT NULL, note text)",
        'CREATE TABLE shop."order lines" (id bigint PRIMARY KEY, "order" int)',
        "INSERT INTO shop.orders SELECT n, n, 'note ' || n FROM generate_series(1, 100) AS n",
        'CREATE PUBLICATION pub FOR TABLE shop.orders, shop."order lines"',
    )
    changes = ("UPDATE shop.orders SET amount = 9 WHERE id < 10", 'INSERT INTO shop."order lines" VALUES (1, 1)')
    with (
        _two_places(database, tmp_path) as (here, elsewhere),
        dg.DagsterInstance.ephemeral() as instance,
        dagster(tmp_path / "dagster", elsewhere) as other,
    ):
        shared = SharedSpark(config_path=str(here))
        _run_here(here, shared, instance, "shop_bootstrap")
        database.execute(*changes)
        _run_here(here, shared, instance, "shop_drain")
        _copy_lake(here, elsewhere)
        drivers = JavaChildren()
        for job in _JOBS:
            expected = _events(instance, _run_here(here, shared, instance, job))
            run = other.launch(job)
            assert run.status is dg.DagsterRunStatus.SUCCESS, job
            actual = _events(other.instance, run.run_id)
            assert expected
            varying = _OF_MAINTENANCE if job == "shop_maintenance" else ()
            assert _differences(_without(actual, varying), _without(expected, varying)) == {}, job
        _prove(here, elsewhere, shared, instance, other)
        parents = drivers.seen()
    assert parents
    # A run of Dagster's is a process that multiprocessing has made: its command line does not name Dagster.
    assert not [parent for parent in parents if "-m lakeproof" not in parent]


def _prove(here: Path, elsewhere: Path, spark: SharedSpark, instance: dg.DagsterInstance, other: Dagster) -> None:
    job = "shop_verification"
    expected = _without(_events(instance, _run_here(here, spark, instance, job)), _OF_A_PROOF)
    # The proof has read on; the second one begins where the first has ended.
    _copy_lake(here, elsewhere)
    run = other.launch(job)
    assert run.status is dg.DagsterRunStatus.SUCCESS
    # Six assets, the expectations' own among them, and a check of each; that one has two.
    assert len(expected) == 13
    assert _differences(_without(_events(other.instance, run.run_id), _OF_A_PROOF), expected) == {}


# A cycle takes a segment, so a compaction has so many.
_SEGMENTS = 15
# Within so long a command notices that it is to end.
_LOOKS_S = 3
_CANCEL = "mutation($id: String!) { terminateRun(runId: $id) { __typename } }"


def test_ending_a_run_ends_the_work_at_its_next_safe_point(database: Database, tmp_path: Path) -> None:
    """A compaction of many cycles, ended in Dagster in its third: the command is gone, and that cycle has a cut."""
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, n int)",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    options = "    compaction: {cycle_rows: 1}\n"
    rest = f"    tables: [public.t]\n{options}compute: {{command: {HERE}}}\n"
    path = write_source(tmp_path, database, rest)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LP_SHELL_PASSWORD", password_of(database))
        here = tmp_path / "third cycle"
        patch.setenv(VARIABLE, f"cycle.after_intent:3@hold:{here}")
        config = load(path)
        with dagster(tmp_path / "dagster", path) as other:
            assert other.launch("shop_bootstrap").status is dg.DagsterRunStatus.SUCCESS
            for n in range(_SEGMENTS):
                database.execute(SQL("INSERT INTO t VALUES ({}, 0)").format(Literal(n)))
                drain(config, "shop", Until.caught_up())
            cuts = Path(config.lake) / "shop" / "cycles" / "cuts"
            run_id = other.start("shop_compaction")
            # A cycle takes a few milliseconds, and ending a run a second.
            _wait_until(here.exists)
            assert other.ask(_CANCEL, {"id": run_id})["terminateRun"]["__typename"] == "TerminateRunSuccess"
            _wait_until(lambda: [*Path(config.lake).glob(".runs/messages/*/stop")])
            time.sleep(_LOOKS_S)
            here.unlink()
            assert other.ended(run_id).status is dg.DagsterRunStatus.CANCELED
            intents = {file.name for file in (cuts.parent / "intents").glob("*.json")}
            assert {file.name for file in cuts.glob("*.json")} == intents
            assert 3 <= len(intents) < _SEGMENTS
            assert not _commands_of(path)
            assert not [*Path(config.lake).glob(".runs/messages/*/*")]


def _commands_of(config: Path) -> list[str]:
    """Return the commands of lakeproof that work on a configuration."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if "-m lakeproof" in line and str(config) in line:
            lines.append(line)
    return lines


def _wait_until(condition: Any, timeout_s: float = 900) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
