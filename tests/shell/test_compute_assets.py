"""Dagster's own assets and checks, whose Spark works on a platform: the lake is the source, and events name the job.

What the events say else is the same as in Dagster's process: `test_compute_same_events.py`. EMR Serverless is moto here.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import dagster as dg
import pytest
from moto.emrserverless.models import emrserverless_backends
from moto.server import ThreadedMotoServer

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.load import load
from lakeproof.drain.until import Until
from lakeproof.lake.records.store import newest_cut
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from orchestration.build import build
from tests.compare import lake_rows, source_rows, table_columns
from tests.fix_platforms import EMR, section_of
from tests.fix_postgres import Database
from tests.shell.platforms import LAKEPROOF, Platform
from tests.shell.sample import password_of, write_source

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]
TABLE = TableName("public", "t")
ACCOUNT = "123456789012"
_OPTIONS = "    tables: [public.t]\n    buckets: 4\n"


@contextmanager
def _moto(region: str) -> Iterator[tuple[str, str]]:
    """EMR Serverless as moto has it: its URL, and an application. moto runs no job, so a thread does."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    client = boto3.client("emr-serverless", region_name=region, endpoint_url=url)
    application = client.create_application(name="lake", releaseLabel="emr-7.0.0", type="SPARK")["applicationId"]
    ended = threading.Event()
    thread = threading.Thread(target=_run_jobs, args=(region, application, ended))
    thread.start()
    try:
        yield url, application
    finally:
        ended.set()
        thread.join()
        server.stop()


def _run_jobs(region: str, application: str, ended: threading.Event) -> None:
    """Run each job that moto has been given, until the end."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    while not ended.wait(0.2):
        for job in list(emrserverless_backends[ACCOUNT][region].job_runs.get(application, ())):
            assert job.job_driver is not None
            submit: Mapping[str, Any] = job.job_driver["sparkSubmit"]
            if job.id not in running:
                running[job.id] = subprocess.Popen([*LAKEPROOF, *submit["entryPointArguments"]])
                job.state = "RUNNING"
            status = running[job.id].poll()
            if status is not None:
                job.state, job.state_details = ("FAILED", f"status {status}") if status else ("SUCCESS", "")
    for process in running.values():
        process.kill()
        process.wait()


def _run(path: Path, instance: dg.DagsterInstance, job: str) -> dg.ExecuteInProcessResult:
    done = build(load(path)).resolve_job_def(job).execute_in_process(instance=instance)
    assert done.success
    return done


def _is_the_source(path: Path, database: Database) -> bool:
    lake = SourceLake.open(load(path).location, "shop")
    cut = newest_cut(lake)
    assert cut is not None
    version = cut.tables[TABLE].current_version
    rows = lake_rows(lake.url(lake.paths.current(TABLE)), version, *table_columns(database.dsn, TABLE))
    return rows == source_rows(database.dsn, (TABLE,))[TABLE]


@pytest.mark.parametrize("name", ["kubernetes", "emr_serverless", "databricks"])
def test_a_compaction_on_a_platform_is_an_event_of_each_table(
    database: Database, platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its metadata names the job; on the first of them a proof runs after it, and its check is green."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, note text)",
        "INSERT INTO t SELECT n, 'note ' || n FROM generate_series(1, 100) n",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    monkeypatch.setattr("moto.emrserverless.models.JOB_STATUS", "SUBMITTED")  # inside: moto's jobs have ended at once
    section = section_of(tmp_path, name)
    with _moto(str(EMR["region"])) as (url, application), dg.DagsterInstance.ephemeral() as instance:
        if name == "emr_serverless":
            monkeypatch.setenv("AWS_ENDPOINT_URL_EMR_SERVERLESS", url)
            section = section.replace('"app1"', f'"{application}"').replace(
                "arn:aws:iam::1:", f"arn:aws:iam::{ACCOUNT}:"
            )
        path = write_source(tmp_path, database, f"{_OPTIONS}{section}")
        bootstrap(load(path), "shop")
        database.execute("UPDATE t SET note = 'other' WHERE id < 10", "DELETE FROM t WHERE id > 90")
        drain(load(path), "shop", Until.caught_up())
        done = _run(path, instance, "shop_compaction")
        events = [e.step_materialization_data.materialization for e in done.get_asset_materialization_events()]
        assert {str(event.asset_key.path[0]) for event in events} == {"history", "current"}
        for event in events:
            assert str(event.metadata["ran_as"].value).startswith(("pod lake/lake-", "job run ", "run 1"))
            assert ("ran_as_page" in event.metadata) == (name == "databricks")
        assert _is_the_source(path, database)
        if name == "kubernetes":
            database.execute("INSERT INTO t SELECT n, 'more' FROM generate_series(200, 300) n")
            drain(load(path), "shop", Until.caught_up())
            checks = _run(path, instance, "shop_verification").get_asset_check_evaluations()
            assert checks
            assert all(check.passed for check in checks)
            assert _is_the_source(path, database)
            assert not platform.tokens, "each pod is deleted"
