"""The UI in a real browser, as a person uses it: on a real server with the demonstration's tables, started as by `make ui`.

One start serves all tests, in the order of this file: each opens pages, presses buttons and waits until a page shows what
should come of it. What is asserted is the text that a person sees, also in the terminal, from its first line to its last.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from demo.processes import left_over_processes
from demo.server import EmbeddedPostgres
from scripts.fetch.browser import CHROMIUM
from tests.support.ingest.fix_drain import wait_until
from tests.support.servers.fix_postgres import new_database
from tests.support.shell.browsing import Browser, browser
from tests.support.shell.served_ui import DAYS, ServedUi, served_ui

pytestmark = [pytest.mark.jvm, pytest.mark.postgres, pytest.mark.slow]

# A run starts a process, on a machine that may be busy with other tests.
_RUN_S = 300.0
# The same with a JVM.
_SPARK_S = 900.0
_EXPECTATIONS = "expectations/shop/shop/orders"


@pytest.fixture(scope="module")
def served(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedUi]:
    """The UI's processes, which Ctrl-C ends in order."""
    with new_database(postgres) as database:
        with served_ui(tmp_path_factory.mktemp("ui"), database) as ui:
            yield ui
            os.kill(ui.script.pid, signal.SIGINT)
            assert ui.script.wait(_RUN_S) == 128 + signal.SIGINT
            assert ui.shown()[-1] == "ending, in order: a drain makes durable what it has read"
            assert left_over_processes(ui.log.parent) == []
        slots = database.rows("SELECT active FROM pg_replication_slots WHERE slot_name = current_database()")
        assert slots == [(False,)]


@pytest.fixture(scope="module")
def tab(served: ServedUi) -> Iterator[Browser]:
    """A tab of the browser; none of the pages may throw an error."""
    if CHROMIUM.find() is None:
        pytest.skip(f"no browser: {CHROMIUM.remedy}")
    with browser(served.url) as opened:
        yield opened
        assert opened.errors == []


def _launched(tab: Browser) -> str:
    """The page of the run that a button has launched, as the note of its launch links it."""
    link = tab.page.locator("a[href*='/runs/']", has_text="View").last
    # The launch itself plans the run in the location's process.
    expect(link).to_be_visible(timeout=_RUN_S * 1000)
    return str(link.get_attribute("href"))


def _ends(tab: Browser, run: str, within_s: float) -> None:
    """Wait until the run's page says Success; its log has longer words with it much earlier."""
    tab.comes_true(run, tab.page.get_by_text("Success", exact=True).first.is_visible, "Success", within_s)


def _started_run(tab: Browser, job: str, other_than: str = "") -> str:
    """The page of a job's newest run, which has started, as the first line of its runs shows it."""
    newest = tab.page.locator("a[href*='/runs/']").first
    started = tab.page.get_by_text("Started", exact=True).first

    def is_there() -> bool:
        return started.is_visible() and newest.get_attribute("href") != other_than

    tab.comes_true(f"/locations/lakeproof/jobs/{job}/runs", is_there, "a run that has started", _RUN_S)
    return str(newest.get_attribute("href"))


def test_the_lineage_goes_from_postgres_to_the_proof(tab: Browser) -> None:
    """Eight tables are a graph of a few groups, which fits on a screen."""
    tab.open("/asset-groups")
    layers = ("postgres", "snapshot", "changes", "history", "current", "expectations", "daily", "maintenance", "proof")
    tab.sees(*(f"shop_{layer}" for layer in layers), "views_proof")
    tab.picture("ui-lineage")


def test_the_terminal_shows_a_line_of_each_warning(served: ServedUi) -> None:
    """The log has what runs write, and the stack traces of those that are ended."""
    served.database.execute("UPDATE shop.orders SET note = 'logged' WHERE id IN (SELECT id FROM shop.orders LIMIT 3)")
    wait_until(lambda: "3 updates" in served.log.read_text(encoding="utf-8"), timeout_s=_RUN_S)
    shown = served.shown()
    assert shown[0].endswith(f"(Ctrl-C ends it; log: {served.log})")
    assert not [line for line in shown if "DEBUG" in line or "Traceback" in line or line.startswith(" ")]
    assert len(shown) < 10, shown


@pytest.mark.full
def test_a_source_table_shows_types_and_comments(tab: Browser) -> None:
    """PostgreSQL's whole types, and what a DBA wrote about a column and a table."""
    tab.open_asset("postgres/shop/shop/orders")
    tab.sees("numeric(12,2)", "in euro, with tax", "One row per order")
    tab.open_asset("postgres/shop/shop/customers")
    tab.sees("Whoever has ordered once", "timestamp with time zone")


@pytest.mark.full
def test_two_tables_are_copied_again_in_one_run(tab: Browser) -> None:
    """Chosen in the catalog, copied under one snapshot: both say the same point."""
    tab.open('/assets?asset-selection=key:"snapshot/shop/shop/orders" or key:"snapshot/shop/shop/products"')
    tab.sees("Asset name", "shop_snapshot")
    tab.page.locator("label:has(input[type=checkbox])").first.click()
    tab.button("Materialize selected").click()
    _ends(tab, _launched(tab), _RUN_S)
    points = set()
    for table in ("orders", "products"):
        tab.open_asset(f"snapshot/shop/shop/{table}", "events")
        tab.sees("consistent_point")
        points |= set(re.findall(r"consistent_point\s+([0-9A-F]+/[0-9A-F]+)", tab.page.inner_text("body")))
    assert len(points) == 1


@pytest.mark.full
def test_a_change_is_seen_with_its_position_and_plots(tab: Browser, served: ServedUi) -> None:
    """The event says what changed, up to which LSN; the lag is a plot."""
    served.database.execute("UPDATE shop.orders SET note = 'seen' WHERE id IN (SELECT id FROM shop.orders LIMIT 3)")
    tab.comes_to_see(
        "/assets/changes/shop/shop/orders?view=events", "3 updates", "end_lsn", "wal_lag_bytes", within_s=_RUN_S
    )
    tab.open_asset("changes/shop/shop/orders")
    tab.sees("Plots")
    tab.button("Plots").click()
    expect(tab.page.locator("canvas").first).to_be_visible()
    tab.sees("end_lsn_int", "lag_seconds")
    tab.text("lag_seconds").scroll_into_view_if_needed()
    tab.picture("ui-plots")


@pytest.mark.full
def test_a_killed_drain_comes_back(tab: Browser, served: ServedUi) -> None:
    """After kill -9 the run is a failure, the sensor has started its successor, and nothing is lost."""
    killed = _started_run(tab, "shop_drain")
    tab.open(killed)
    tab.page.get_by_placeholder("Filter…").last.fill("pid")
    tab.sees("pid: ")
    (pid,) = set(re.findall(r"pid: (\d+)", tab.page.inner_text("body")))
    os.kill(int(pid), signal.SIGKILL)
    tab.comes_true(killed, tab.page.get_by_text("Failure", exact=True).first.is_visible, "Failure", _RUN_S)
    served.database.execute("DELETE FROM shop.order_lines WHERE order_id IN (SELECT id FROM shop.orders LIMIT 2)")
    _started_run(tab, "shop_drain", other_than=killed)
    tab.comes_true(
        "/assets/changes/shop/shop/order_lines?view=events",
        lambda: re.search(r"[0-9] deletes?, lag", tab.page.inner_text("body")) is not None,
        "the deleted lines",
        _RUN_S,
    )


@pytest.mark.full
def test_the_slot_can_be_checked(tab: Browser) -> None:
    """Materialize on the slot's page gives its positions and a green check, beside that of the lake."""
    tab.open_asset("slots/shop")
    tab.button("Materialize").click()
    _ends(tab, _launched(tab), _RUN_S)
    tab.open_asset("slots/shop", "checks")
    tab.sees("slot_health", "Succeeded", "lake_is_whole")


@pytest.mark.full
def test_a_table_in_the_lake_has_columns_and_rows(tab: Browser) -> None:
    """The compaction that the sensor keeps going shows Delta's types beside PostgreSQL's, and what may be NULL."""
    tab.comes_to_see(
        "/assets/current/shop/shop/orders", "decimal(12,2)", "postgres: numeric(12,2)", "in euro", within_s=_SPARK_S
    )
    tab.sees("non-nullable", "Delta Lake", "One row per order")
    tab.picture("ui-table")


@pytest.mark.full
def test_a_current_table_is_materialized(tab: Browser) -> None:
    """The dialog names the tables of the same cut; the run waits for its turn beside the one that goes on."""
    tab.open_asset("current/shop/shop/orders")
    tab.button("Materialize").click()
    tab.sees("history / shop / shop / orders")
    tab.button("Confirm").click()
    # The copy was made on the command line, and for most tables nothing has come yet: Dagster knows of both nevertheless.
    _ends(tab, _launched(tab), _SPARK_S)


@pytest.mark.full
def test_a_table_is_proved_and_its_proof_is_green(tab: Browser) -> None:
    """The proof's page says at which LSN source and lake are equal, with the rows of both."""
    tab.open_asset("proof/current/shop/shop/orders")
    tab.button("Materialize").click()
    _ends(tab, _launched(tab), _SPARK_S)
    tab.open_asset("proof/current/shop/shop/orders", "checks")
    tab.sees("proved_equal", "Passed", "compared_at_lsn", "source_rows")
    tab.picture("ui-proof")


@pytest.mark.full
def test_a_failing_expectation_stays_red(tab: Browser, served: ServedUi) -> None:
    """A status that nobody expects is red, and still is after the next cut: the row is still there."""
    served.database.execute("UPDATE shop.orders SET status = 'lost' WHERE id = (SELECT id FROM shop.orders LIMIT 1)")
    tab.comes_to_see("/assets/current/shop/shop/orders?view=events", "1 row in, 1 row out", within_s=_RUN_S)
    tab.open_asset(_EXPECTATIONS)
    tab.button("Materialize").click()
    _ends(tab, _launched(tab), _SPARK_S)
    tab.open_asset(_EXPECTATIONS, "checks")
    tab.sees("Failed", "Succeeded")
    tab.picture("ui-expectation")
    served.database.execute("UPDATE shop.orders SET note = 'x' WHERE id IN (SELECT id FROM shop.orders LIMIT 5)")
    tab.comes_to_see("/assets/current/shop/shop/orders?view=events", "5 rows in, 5 rows out", within_s=_RUN_S)
    tab.open_asset(_EXPECTATIONS, "checks")
    tab.sees("Failed")


@pytest.mark.full
def test_seven_days_are_filled_by_one_run(tab: Browser) -> None:
    """The dialog of the backfill says that it is one run; afterwards every day is there."""
    tab.open_asset("daily/shop/shop/orders", "partitions")
    tab.sees(f"Missing ({DAYS})")
    tab.button("Materialize…").click()
    tab.sees("Backfills all partitions in a single run")
    dialog = tab.page.get_by_role("dialog")
    dialog.get_by_role("button", name="All", exact=True).click()
    expect(dialog.get_by_text(f"{DAYS} partitions").first).to_be_visible()
    tab.picture("ui-backfill")
    dialog.get_by_role("button", name="Launch").click()
    tab.comes_to_see(
        "/assets/daily/shop/shop/orders?view=partitions", f"Materialized ({DAYS})", "Missing (0)", within_s=_SPARK_S
    )


@pytest.mark.full
def test_a_held_table_says_why_and_what_to_do(tab: Browser, served: ServedUi) -> None:
    """A type that no cycle can follow holds this table alone; its page has the reason and the command."""
    served.database.execute(
        "ALTER TABLE pgbench_tellers ALTER tbalance TYPE text", "UPDATE pgbench_tellers SET tbalance = 'x'"
    )
    tab.comes_to_see(
        "/assets/current/shop/public/pgbench_tellers?view=events",
        "held: its schema changed",
        "run `lakeproof bootstrap shop --tables public.pgbench_tellers`",
        within_s=_RUN_S,
    )
    tab.picture("ui-held")
