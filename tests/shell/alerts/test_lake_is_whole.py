"""The check `lake_is_whole`: what the lake lacks, by its severity, and as a problem that people are notified of."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import pytest

from assets.slots import WHOLE, whole_result
from lakeproof.lake.records.store import write_cut
from lakeproof.names import CycleNumber, Incarnation
from lakeproof.proof.record import record
from lakeproof.proof.result import ProofReport, Status, TableProof
from orchestration.alerts import failed_checks
from resources import Settings
from tests.edges.planning.plan_steps import A, B, cut_of, planned
from tests.support.lake.simulated_source import SimulatedSource, two_tables


@pytest.fixture
def source(tmp_path: Path) -> SimulatedSource:
    """A source with two tables in the lake, and a server that nobody can reach."""
    result = two_tables(tmp_path / "lake")
    write_cut(result.lake, cut_of(result, planned(result, None)))
    (tmp_path / "lakeproof.yaml").write_text(
        "lake: lake\nsources:\n  shop: {dsn: 'host=127.0.0.1 port=1 user=u dbname=d'}\n"
    )
    return result


def _looked(source: SimulatedSource) -> dg.AssetCheckResult:
    return whole_result(Settings(config_path=str(source.folder.parent / "lakeproof.yaml")), "shop")


def _proved(source: SimulatedSource, result: Status) -> None:
    tables = {table: TableProof(result, 1, 1) for table in (A, B)}
    record(source.lake, Incarnation(1), ProofReport("shop", source.chain.end, tables))


def test_what_is_lacking_fails_the_check_by_its_severity(source: SimulatedSource) -> None:
    """A table that was never compared is a warning, one that differed an error; no server is asked."""
    never = _looked(source)
    assert (never.passed, never.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert never.description == "never compared with the source: app.a, app.b; run `lakeproof prove shop`"
    assert never.metadata["unproved_tables"].value == 2
    _proved(source, "equal")
    assert (_looked(source).passed, _looked(source).description) == (True, None)
    _proved(source, "differs")
    differs = _looked(source)
    assert (differs.passed, differs.severity) == (False, dg.AssetCheckSeverity.ERROR)


def test_a_lake_that_cannot_be_read_fails_the_check(source: SimulatedSource) -> None:
    """Nobody knows then what is lacking; of one damaged document only what it says."""
    _proved(source, "equal")
    config = source.folder.parent / "lakeproof.yaml"
    config.write_text(config.read_text().replace("dbname=d'}", "dbname=d', daily: [app.a]}"))
    source.lake.store.put(source.lake.paths.days(A), b"{}")
    days = _looked(source)
    assert (days.passed, days.severity, days.metadata["absent_tables"].value) == (False, dg.AssetCheckSeverity.ERROR, 0)
    assert source.lake.paths.days(A) in (days.description or "")
    source.lake.store.put(source.lake.paths.cut(CycleNumber(1)), b"{}")
    actual = _looked(source)
    assert (actual.passed, actual.severity) == (False, dg.AssetCheckSeverity.ERROR)
    assert "the lake can't be read: " in (actual.description or "")


def test_a_failed_check_is_a_problem_of_its_own_kind(source: SimulatedSource) -> None:
    """Whoever wants messages of slots alone has none of it."""
    actual = _looked(source)
    assert actual.asset_key is not None
    with dg.DagsterInstance.ephemeral() as instance:
        event = dg.AssetCheckEvaluation(
            asset_key=actual.asset_key,
            check_name=WHOLE,
            passed=actual.passed,
            severity=actual.severity,
            metadata={},
            description=actual.description,
        )
        instance.report_runless_asset_event(event)
        (problem,) = failed_checks(instance, [dg.AssetCheckKey(actual.asset_key, WHOLE)])
    assert (problem.kind, problem.severity) == ("lacking", "warn")
    assert "never compared" in problem.text
