"""A source that nobody can reach is red within a minute or so, and green again when it is back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.load import load
from orchestration.outside_proofs import OutsideProofs
from orchestration.policies.slot_check import OK, OUTAGE_S, PAUSE_S, UNREACHABLE, LastReport, SlotCursor, decide_report
from orchestration.sensors import slot_drain_sensor
from resources import Settings
from tests.support.servers.fix_postgres import Database
from tests.support.shell.launched import dagster
from tests.support.shell.sample import password_of, write_source

NOW = 1_000_000.0


def _levels(*looks: tuple[float, str]) -> Iterator[tuple[float, str]]:
    """Return the reports of a series of looks, through the cursor as the sensor keeps it."""
    message = LastReport()
    for after, level in looks:
        due, message = decide_report(message, level, NOW + after)
        message = SlotCursor.from_text(SlotCursor("", message, "").text()).check
        if due:
            yield after, level


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        ([(0, OK), (5, OK)], [(0, OK)]),
        ([(0, UNREACHABLE), (OUTAGE_S - 1, UNREACHABLE), (OUTAGE_S, OK)], [(OUTAGE_S, OK)]),
        ([(0, UNREACHABLE), (OUTAGE_S, UNREACHABLE), (OUTAGE_S + 5, UNREACHABLE)], [(OUTAGE_S, UNREACHABLE)]),
        (
            [(0, UNREACHABLE), (50, OK), (55, UNREACHABLE), (70, UNREACHABLE), (115, UNREACHABLE)],
            [(50, OK), (115, UNREACHABLE)],
        ),
        (
            [(0, UNREACHABLE), (60, UNREACHABLE), (65, OK), (60 + PAUSE_S, OK), (125, OK)],
            [(60, UNREACHABLE), (60 + PAUSE_S, OK)],
        ),
        ([(0, "WARN"), (5, "ERROR"), (10, "WARN"), (PAUSE_S, "ERROR")], [(0, "WARN"), (PAUSE_S, "ERROR")]),
        ([(0, "ERROR"), (90, UNREACHABLE), (151, UNREACHABLE)], [(0, "ERROR"), (151, UNREACHABLE)]),
    ],
    ids=[
        "nothing new",
        "a restart",
        "an outage",
        "two short ones",
        "an outage ends",
        "at a threshold",
        "lost, then gone",
    ],
)
def test_changes_are_reported_once(looks: list[tuple[float, str]], expected: list[tuple[float, str]]) -> None:
    """Changes are reported at most once a minute; a failed look only if it lasts."""
    assert list(_levels(*looks)) == expected


@pytest.mark.parametrize(
    "cursor", [None, "", "{", "7", '{"check": 1}', '{"check": {"level": "ok"}}', '{"unread_since": 3}']
)
def test_another_cursor_is_a_new_beginning(cursor: str | None) -> None:
    """A cursor from a version without the check begins anew."""
    assert SlotCursor.from_text(cursor) == SlotCursor()


_REST = """\
    tables: [public.orders]
"""


@dataclass
class SensorTicks:
    """Ticks of the source's sensor, as the daemon makes them: the cursor is kept and events are written down."""

    config: Path
    instance: dg.DagsterInstance
    now: float = NOW
    cursor: str | None = None

    def tick(self, after_s: float) -> list[bool]:
        """Look once, `after_s` seconds later, and return the check's result."""
        self.now += after_s
        settings = Settings(config_path=str(self.config))
        config = load(self.config)
        source, proofs = config.source("shop"), OutsideProofs.of(config, config.source("shop"))
        with dg.build_sensor_context(self.instance, cursor=self.cursor, resources={"settings": settings}) as context:
            actual = slot_drain_sensor(source, proofs, lambda: self.now)(context)
        assert isinstance(actual, dg.SensorResult)
        self.cursor = actual.cursor
        for event in actual.asset_events:
            assert isinstance(event, dg.AssetCheckEvaluation)
            self.instance.report_runless_asset_event(event)
        return [event.passed for event in actual.asset_events if isinstance(event, dg.AssetCheckEvaluation)]


@pytest.mark.postgres
@pytest.mark.slow
@pytest.mark.full
def test_an_outage_is_red_after_a_minute_and_over_when_it_is_over(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check's result stands on the asset's page, beside the results of the slot's own runs."""
    database.execute("CREATE TABLE orders (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE orders")
    path = write_source(tmp_path, database, _REST)
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    bootstrap(load(path), "shop")
    with dagster(tmp_path / "dagster", path) as running:
        sensor, whole = SensorTicks(path, running.instance), {"lake_is_whole": "green"}
        assert running.launch("shop_slot").is_success
        # Dagster's SQLite stamps a check with the whole second in which it came: within the run's own second it would
        # count as one of before the run.
        time.sleep(1.1)
        assert [sensor.tick(seconds) for seconds in (5, 5)] == [[True], []]
        assert running.shown("slots/shop") == {"slot_health": "green", **whole}
        write_source(tmp_path, database, _REST, port=1)
        assert [sensor.tick(seconds) for seconds in (5, 30, 25)] == [[], [], []]
        assert sensor.tick(10) == [False]
        assert running.shown("slots/shop") == {"slot_health": "red", **whole}
        assert running.launch("shop_slot").status is dg.DagsterRunStatus.FAILURE
        assert running.shown("slots/shop") == {"slot_health": "red", **whole}
        write_source(tmp_path, database, _REST)
        assert [sensor.tick(seconds) for seconds in (5, 60)] == [[], [True]]
        assert running.shown("slots/shop") == {"slot_health": "green", **whole}
