"""A command at another place: its result, its events and its errors are those of the same command in Dagster's process.

Runs that need Spark are in `test_compute_same_events.py`.
"""

import json
import sys
import threading
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.events import Event, RunControl, Stop
from lakeproof.storage.open import open_store
from resources import Compute
from resources.elsewhere import command_line
from tests.support.servers.fix_postgres import Database
from tests.support.shell.elsewhere import HERE, result_of
from tests.support.shell.sample import password_of, write_source

_TABLES = "    tables: [public.t]\n"


def _config(folder: Path, compute: str = "") -> Path:
    path = folder / "lakeproof.yaml"
    path.write_text(f"lake: lake\nsources:\n  shop: {{dsn: dbname=x, tables: [public.t]}}\n{compute}", encoding="utf-8")
    return path


def _failure(config: Path, *words: str) -> dg.Failure:
    with pytest.raises(dg.Failure) as raised:
        result_of(config, *words)
    return raised.value


def test_an_error_is_the_same_from_both_places(tmp_path: Path) -> None:
    """There is no landing: thing, reason and remedy arrive, and nothing of the messages stays in the lake."""
    (tmp_path / "lake" / "another_source").mkdir(parents=True)
    here = _failure(_config(tmp_path), "compact", "shop")
    config = _config(tmp_path, f"compute: {{command: {HERE}}}\n")
    elsewhere = _failure(config, "compact", "shop")
    assert here.description == elsewhere.description
    assert here.metadata == elsewhere.metadata
    assert here.metadata["thing"].value == "shop: landing"
    assert here.allow_retries == elsewhere.allow_retries
    assert not (tmp_path / "lake" / ".runs" / "messages").exists() or not any(
        (tmp_path / "lake" / ".runs" / "messages").iterdir()
    )


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["no-such-command"], "no-such-command can't be started"),
        ([sys.executable, "-c", "print('out of paper'); raise SystemExit(7)"], "status 7 without a result"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], "signal 9 without a result"),
        ([sys.executable, "-m", "lakeproof", "-c", "gone.yaml", "status", "#"], "without a result"),
    ],
)
def test_a_command_without_a_result_is_one_clear_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], reason: str
) -> None:
    """It has what the command wrote last."""
    monkeypatch.setattr("dagster._core.pipes.utils.WAIT_FOR_LOGS_AFTER_EXECUTION_INTERVAL", 0)  # inside: ten seconds
    failure = _failure(_config(tmp_path, f"compute: {{command: {json.dumps(command)}}}\n"), "compact", "shop")
    assert reason in (failure.description or "")
    assert failure.metadata["remedy"].value
    if "paper" in command[-1]:
        assert "out of paper" in (failure.description or "")


def test_the_words_stand_at_the_end_or_in_their_place() -> None:
    """What a shell on the way would split is quoted."""
    words = ["prove", "shop", "--tables", 'shop."order lines"']
    assert command_line(["lakeproof"], words) == ["lakeproof", *words]
    quoted = """exec lakeproof prove shop --tables 'shop."order lines"'"""
    assert command_line(["ssh", "host", "exec lakeproof {arguments}"], words) == ["ssh", "host", quoted]


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ("compute: {comand: [x]}", "did you mean command?"),
        ("compute: {command: x}", "compute.command: must be a list"),
        ("compute: {command: ['{arguments}', '{arguments}']}", "twice"),
        ("compute: spark", "must be a mapping"),
        ("compute: {config: /etc/lakeproof.yaml}", "compute.command"),
    ],
)
def test_a_mistake_in_the_section_is_named(tmp_path: Path, section: str, text: str) -> None:
    """The file is refused when it is read."""
    with pytest.raises(ConfigFileError, match="compute") as raised:
        load(_config(tmp_path, section))
    assert text in str(raised.value)


@pytest.mark.postgres
def test_a_command_elsewhere_stops_when_its_run_is_ended(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request goes through the lake: a drain that would never end has what it read durable, and ends by itself."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE t")
    rest = f"    drain: {{flush_interval_s: 0.2}}\n{_TABLES}compute: {{command: {HERE}}}\n"
    path = write_source(tmp_path, database, rest)
    bootstrap(load(path), "shop")
    database.execute("INSERT INTO t SELECT generate_series(1, 10)")
    stop, events, outcome = Stop(), list[Event](), list[Any]()

    def report(event: Event) -> None:
        events.append(event)
        if event.kind == "drain.flush":
            stop.request()

    @dg.asset
    def draining(context: dg.AssetExecutionContext, compute: Compute) -> dg.MaterializeResult[None]:
        outcome.append(compute.run(context, ["drain", "shop"], RunControl(report, stop)))
        return dg.MaterializeResult()

    watchdog = threading.Timer(120, stop.request)
    watchdog.daemon = True
    watchdog.start()
    with dg.DagsterInstance.ephemeral() as instance:
        done = dg.materialize([draining], instance=instance, resources={"compute": Compute(config_path=str(path))})
    watchdog.cancel()
    assert done.success
    (result,) = outcome
    assert result["tables"]["public.t"]["inserts"] == 10
    assert [event.kind for event in events].count("drain.flush") >= 1
    assert open_store(load(path).location).list(".runs/messages") == []
