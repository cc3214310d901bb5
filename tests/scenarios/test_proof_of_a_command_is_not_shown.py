"""A proof that the command line made was in the lake's record and not in Dagster, where its check was "Not evaluated"."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.checks.proof import CHECK, HISTORY_CHECK
from lakeproof.cli.results import to_json
from lakeproof.config.load import load
from lakeproof.events import RunControl
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation, TableName
from lakeproof.proof.lake.history import HistoryProof
from lakeproof.proof.record import read_record, record
from lakeproof.proof.result import LakeProof, ProofReport, TableProof
from lakeproof.storage.source_lake import SourceLake
from lakeproof.views.audit import ViewProof
from orchestration.build import build
from orchestration.outside_proofs import PROOFS_MAX, OutsideProofs
from orchestration.sensors import INTERVAL_S, slot_drain_sensor
from resources import Compute, Settings
from tests.support.shell.launched import dagster
from tests.support.shell.sample import write_sample

ORDERS, LINES = TableName("shop", "orders"), TableName("shop", "order lines")
CURRENT = dg.AssetKey(["proof", "current", "shop", "shop", "orders"])
HISTORY = dg.AssetKey(["proof", "history", "shop", "shop", "orders"])
VIEW = dg.AssetKey(["proof", "views", "copy"])
EQUAL, DIFFERS, HELD = TableProof("equal", 7, 7), TableProof("differs", 8, 7, 1), TableProof("held", reason="why")


@dataclass
class Ticks:
    """Ticks of the source's sensor on a server that is not there, as the daemon makes them."""

    config: Path
    instance: dg.DagsterInstance
    now: float = 1000.0
    cursor: str | None = None
    most: int = PROOFS_MAX

    def tick(self, after_s: float = INTERVAL_S) -> list[str]:
        """Look once, write the events down, and return the assets whose checks were evaluated."""
        self.now += after_s
        config = load(self.config)
        source = config.source("shop")
        proofs_of = replace(OutsideProofs.of(config, source), most=self.most)
        sensor = slot_drain_sensor(source, proofs_of, lambda: self.now)
        settings = Settings(config_path=str(self.config))
        with dg.build_sensor_context(self.instance, cursor=self.cursor, resources={"settings": settings}) as context:
            result = sensor(context)
        assert isinstance(result, dg.SensorResult)
        self.cursor = result.cursor
        proofs = [event for event in result.asset_events if event.asset_key.path[0] == "proof"]
        for event in proofs:
            self.instance.report_runless_asset_event(event)
        return sorted(
            event.asset_key.to_user_string() for event in proofs if isinstance(event, dg.AssetCheckEvaluation)
        )

    def newest(self, key: dg.AssetKey, check: str = CHECK) -> dg.AssetCheckEvaluation:
        """Return the newest evaluation of an asset's check."""
        (execution,) = self.instance.event_log_storage.get_asset_check_execution_history(
            dg.AssetCheckKey(key, check), limit=1
        )
        assert execution.evaluation is not None
        return execution.evaluation

    def comparisons(self, key: dg.AssetKey) -> int:
        """Return how many materializations an asset has."""
        return len(self.instance.fetch_materializations(key, limit=10).records)


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration of two sources, whose servers are not there."""
    monkeypatch.setenv("LP_SHELL_PASSWORD", "x")
    return write_sample(tmp_path)


@pytest.fixture
def ticks(config: Path) -> Iterator[Ticks]:
    """A sensor on an instance that knows nothing."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield Ticks(config, instance)


def _lake(config: Path) -> SourceLake:
    return SourceLake.open(load(config).location, "shop")


def _prove(
    config: Path, position: int | None, tables: dict[TableName, TableProof], lake: LakeProof | None = None
) -> Any:
    """Leave in the lake what `lakeproof prove` leaves there, and return its result as JSON."""
    report = ProofReport("shop", None if position is None else Lsn(position), tables, lake)
    record(_lake(config), Incarnation(1), report)
    return to_json(report)


def test_a_proof_by_a_command_is_shown_once(ticks: Ticks) -> None:
    """Tables, histories and views, with position, time and process; those that were never proved stay as they are."""
    assert ticks.tick() == []
    lake = LakeProof(3, Lsn(0x2A), {ORDERS: HistoryProof("equal", 9)}, {"copy": ViewProof("differs", "one row")})
    _prove(ticks.config, 512, {ORDERS: EQUAL, LINES: DIFFERS}, lake)
    assert ticks.tick() == [
        "proof/current/shop/shop/order-20lines", CURRENT.to_user_string(), HISTORY.to_user_string(), "proof/views/copy"
    ]  # fmt: skip
    assert [ticks.tick() for _ in range(3)] == [[], [], []]

    shown, recorded = ticks.newest(CURRENT), read_record(_lake(ticks.config)).tables[ORDERS]
    assert shown.passed
    assert shown.description == f"7 rows equal at 0/200; proved by {recorded.by}"
    assert {"compared_at_lsn", "verified_at", "recorded_at", "recorded_by", "source_rows"} <= shown.metadata.keys()
    assert recorded.by.startswith("process ")
    assert (ticks.newest(HISTORY, HISTORY_CHECK).description or "").startswith(
        "its 9 rows are those that cycles wrote;"
    )
    view = ticks.newest(VIEW)
    assert (view.passed, view.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert (view.description or "").startswith("one row;")
    assert [ticks.comparisons(key) for key in (CURRENT, HISTORY, VIEW)] == [1, 1, 1]
    (event,) = ticks.instance.fetch_materializations(CURRENT, limit=1).records
    assert event.asset_materialization is not None
    assert (event.asset_materialization.tags or {})["dagster/data_version"] == "0/200"


def test_a_proof_that_compared_nothing_leaves_the_last_comparison_readable(ticks: Ticks) -> None:
    """As one that Dagster makes: the check has the reason, red if the table differed, and the materialization stays."""
    _prove(ticks.config, 512, {ORDERS: DIFFERS})
    ticks.tick()
    _prove(ticks.config, None, {ORDERS: HELD})
    assert ticks.tick() == [CURRENT.to_user_string()]
    shown = ticks.newest(CURRENT)
    assert (shown.passed, shown.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "it differed" in (shown.description or "")
    assert ticks.comparisons(CURRENT) == 1


def test_proofs_of_changes_are_shown_now_and_then(ticks: Ticks) -> None:
    """They come every two minutes, and Dagster keeps events for ever: one that says something new, or one now and then."""
    changed = replace(EQUAL, kind="changed")
    _prove(ticks.config, 512, {ORDERS: changed})
    assert ticks.tick() == [CURRENT.to_user_string()]
    assert (ticks.newest(CURRENT).description or "").startswith(
        "7 rows equal at 0/200, by what changed since the proof"
    )
    _prove(ticks.config, 513, {ORDERS: changed})
    assert ticks.tick() == []
    _prove(ticks.config, 514, {ORDERS: replace(DIFFERS, kind="changed")})
    assert ticks.tick() == [CURRENT.to_user_string()]
    _prove(ticks.config, 515, {ORDERS: EQUAL})
    assert ticks.tick() == [CURRENT.to_user_string()]


def test_a_new_cursor_reports_nothing_twice(ticks: Ticks) -> None:
    """What Dagster's own events have is known without it."""
    _prove(ticks.config, 512, {ORDERS: EQUAL})
    assert ticks.tick() == [CURRENT.to_user_string()]
    ticks.cursor = None
    assert ticks.tick() == []
    ticks.cursor = "{"
    assert ticks.tick() == []


def test_as_many_proofs_as_a_tick_has_time_for(ticks: Ticks) -> None:
    """The next tick goes on at once."""
    ticks.most = 1
    _prove(ticks.config, 512, {ORDERS: EQUAL, LINES: EQUAL})
    first, second = ticks.tick(), ticks.tick(5)
    assert (len(first), len(second)) == (1, 1)
    assert sorted([*first, *second]) == ["proof/current/shop/shop/order-20lines", CURRENT.to_user_string()]
    assert ticks.tick() == []


class _FakeProofs(Compute):
    """Answers in place of `lakeproof prove`, whose record it leaves in the lake, after a tick of the sensor."""

    def run(
        self, context: dg.AssetExecutionContext | dg.OpExecutionContext, words: Sequence[str], control: RunControl
    ) -> Any:
        del context, words, control
        result = _prove(Path(self.config_path), 1024, {ORDERS: EQUAL})
        _MEANWHILE.looks.append(_MEANWHILE.ticks[-1].tick())
        return result


@dataclass
class _Meanwhile:
    ticks: list[Ticks] = field(default_factory=list)
    looks: list[list[str]] = field(default_factory=list)


_MEANWHILE = _Meanwhile()


def test_a_proof_by_dagster_is_its_own_runs_and_newer(ticks: Ticks) -> None:
    """While its run has not yet evaluated the check, what the lake's record has of it is not reported by the sensor."""
    _prove(ticks.config, 512, {ORDERS: DIFFERS})
    assert ticks.tick() == [CURRENT.to_user_string()]
    _MEANWHILE.ticks.append(ticks)
    job = build(load(ticks.config)).resolve_job_def("shop_verification").get_subset(asset_selection={CURRENT})
    fake = {"compute": _FakeProofs(config_path=str(ticks.config))}
    assert job.execute_in_process(instance=ticks.instance, resources=fake).success
    assert _MEANWHILE.looks == [[]]
    assert [ticks.tick(), ticks.tick()] == [[], []]
    shown = ticks.newest(CURRENT)
    assert (shown.passed, shown.description) == (True, "7 rows equal at 0/400")
    assert ticks.comparisons(CURRENT) == 2


def test_a_run_that_died_before_it_reported_its_proof_is_made_up_for(ticks: Ticks) -> None:
    """The record is all that is left of it."""
    job = build(load(ticks.config)).resolve_job_def("shop_verification")
    run = ticks.instance.create_run_for_job(job, status=dg.DagsterRunStatus.STARTED)
    _prove(ticks.config, 512, {ORDERS: EQUAL})
    assert ticks.tick() == []
    ticks.instance.report_run_failed(run)
    assert ticks.tick() == [CURRENT.to_user_string()]


@pytest.mark.slow
def test_the_page_of_the_asset_shows_it(config: Path, tmp_path: Path) -> None:
    """Green and red by GraphQL, as the UI asks for it."""
    _prove(config, 512, {ORDERS: EQUAL, LINES: DIFFERS})
    with dagster(tmp_path / "dagster", config) as running:
        assert running.shown(CURRENT.to_user_string()) == {CHECK: "grey"}
        assert len(Ticks(config, running.instance).tick()) == 2
        assert running.shown(CURRENT.to_user_string()) == {CHECK: "green"}
        assert running.shown("proof/current/shop/shop/order-20lines") == {CHECK: "red"}
