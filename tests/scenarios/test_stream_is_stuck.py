"""The server can't send the slot's stream any further, though the slot is alive: one state, and one remedy that works.

Two ways into it: a table with `user_catalog_table` that was dropped before the slot had read its rows, and a publication
that was missing for one change (up to PostgreSQL 17 the server fails there, from 18 on it would leave changes out).
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typing_extensions import LiteralString

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.recover import plan_recover, recover
from lakeproof.commands.status import status
from lakeproof.drain.slot_health import HealthCause
from lakeproof.errors import SourceError, StuckError
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.landing.stuck import note_stuck
from lakeproof.postgres.checks.findings import Severity
from lakeproof.state.status import lake_status
from tests.support.servers.fix_postgres import Database
from tests.support.servers.recovery import ITEMS, TABLES, Shop

pytestmark = pytest.mark.postgres

_AUDIT: tuple[LiteralString, ...] = (
    "CREATE TABLE audit (n int) WITH (user_catalog_table = true)",
    "INSERT INTO audit VALUES (1)",
)
# The last statement of each is the one after which the server can't go on.
CAUSES: dict[str, tuple[LiteralString, ...]] = {
    "user catalog table": (*_AUDIT, "DROP TABLE audit"),
    "publication": (
        "DROP PUBLICATION pub",
        "INSERT INTO items VALUES (500, 'while it was missing')",
        "CREATE PUBLICATION pub FOR TABLE items, log",
    ),
}
_REMEDY = "run `lakeproof recover shop --abandon-slot`"


@pytest.fixture(params=list(CAUSES))
def stuck(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> Shop:
    """Return a shop whose stream is going to be stuck: nobody has met it yet."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.change(100)
    shop.drain()
    shop.change(200)
    shop.execute(*CAUSES[request.param])
    shop.change(300)
    return shop


def test_it_is_named_everywhere_with_one_remedy(stuck: Shop) -> None:
    """`drain` tries again, then records it: `status`, the slot's health, `check`, `recover` and `bootstrap` say the same."""
    landed = stuck.chain().end
    with pytest.raises(StuckError) as failed:
        stuck.drain()
    assert _REMEDY in failed.value.remedy
    end = stuck.chain().end
    # What came before the failure has landed; where the server only warns, nobody knows from where on changes are missing.
    assert end > landed or "publication" in failed.value.reason
    assert f"can't send its stream beyond {end}" in failed.value.reason
    report = status(stuck.config).sources["shop"]
    assert report.health is not None
    assert HealthCause.STUCK in {reason.cause for reason in report.health.reasons}
    (problem,) = report.problems
    assert "bytes of WAL" in problem.reason
    assert _REMEDY in problem.remedy
    assert not problem.transient
    without_server = lake_status(stuck.config).sources["shop"].problems
    assert [_REMEDY in each.remedy for each in without_server] == [True]
    for held in [*report.held.values(), *(report.coming or {}).values()]:
        assert _REMEDY in held.remedy
    errors = [f for f in check_source(stuck.config, "shop").findings if f.severity is Severity.ERROR]
    assert [_REMEDY in finding.remedy for finding in errors] == [True]
    with pytest.raises(StuckError, match="--abandon-slot"):
        plan_recover(stuck.config, "shop")
    with pytest.raises(StuckError, match="--abandon-slot"):
        bootstrap(stuck.config, "shop", [ITEMS])
    # At the next start it is known at the first failure, and it is the same record.
    with pytest.raises(StuckError) as again:
        stuck.drain()
    assert again.value.reason == failed.value.reason


def test_its_way_out_is_walked_to_the_end(stuck: Shop) -> None:
    """The slot goes, a new incarnation begins with a copy of every table, and the stream goes on in it."""
    with pytest.raises(StuckError):
        stuck.drain()
    end = stuck.chain().end
    plan = plan_recover(stuck.config, "shop", abandon_slot=True)
    assert (plan.incarnation, plan.end_lsn, plan.drops, plan.keeps_slot) == (2, end, (stuck.slot,), False)
    assert plan.abandons
    assert plan.released_bytes
    recover(stuck.config, "shop", abandon_slot=True)
    stuck.change(400)
    stuck.drain()
    assert stuck.chain().incarnation == 2
    assert not [p for p in status(stuck.config).problems if not p.transient]
    with pytest.raises(SourceError, match="nothing to recover"):
        recover(stuck.config, "shop", abandon_slot=True)


@pytest.mark.full
@pytest.mark.spark
def test_the_lake_equals_the_source_in_the_end(spark: SparkSession, stuck: Shop) -> None:
    """What had landed is applied, history has a gap, and corrections bring each table to the copy."""
    stuck.compact(spark)
    with pytest.raises(StuckError):
        stuck.drain()
    end = stuck.chain().end
    recover(stuck.config, "shop", abandon_slot=True)
    stuck.change(400)
    stuck.drain()
    stuck.compact(spark)
    assert stuck.lake_rows() == stuck.source_rows()
    for table in TABLES:
        rows = read_lake(stuck.config).history("shop", table).arrow().to_pylist()
        (gap,) = (row for row in rows if row["_lp_op"] == "gap")
        assert json.loads(gap["_lp_text"])["from"] == f"1:{end}"


@pytest.mark.parametrize("place", ["recover.after_record", "recover.after_drop", "bootstrap.after_slot"])
def test_a_killed_recovery_goes_on_without_being_asked_again(database: Database, tmp_path: Path, place: str) -> None:
    """The record says that the slot was to be abandoned: the next `recover` drops it, or takes the new one."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.execute(*CAUSES["user catalog table"])
    shop.change(100)
    with pytest.raises(StuckError):
        shop.drain()
    exit_status, _, errors = shop.typed("recover", "--abandon-slot", "--yes", failpoint=place)
    assert exit_status == -9, errors
    recover(shop.config, "shop")
    shop.change(200)
    shop.drain()
    assert shop.chain().incarnation == 2


def test_a_stream_that_goes_on_is_stuck_no_more(database: Database, tmp_path: Path) -> None:
    """Somebody mends the server: the drain tries at each start, and once it has gone on nothing is stuck."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.change(100)
    chain = shop.chain()
    note_stuck(chain, shop.slot, "as it was before")
    assert [_REMEDY in p.remedy for p in status(shop.config).problems] == [True]
    shop.drain()
    assert not status(shop.config).problems


def test_check_warns_of_what_would_end_a_stream(database: Database, tmp_path: Path) -> None:
    """A user catalog table is named, published or not; the remedy takes the danger away."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.execute(*_AUDIT)
    warnings = [f for f in check_source(shop.config, "shop").findings if "user_catalog_table" in f.reason]
    assert [(f.severity, "public.audit" in f.reason) for f in warnings] == [(Severity.WARNING, True)]
    shop.drain()
    shop.execute("ALTER TABLE audit RESET (user_catalog_table)")
    assert not [f for f in check_source(shop.config, "shop").findings if "user_catalog_table" in f.reason]
    shop.execute("INSERT INTO audit VALUES (2)", "DROP TABLE audit")
    shop.change(100)
    shop.drain()


def test_the_command_asks_before_it_abandons_a_slot(database: Database, tmp_path: Path) -> None:
    """Without a terminal nothing is dropped; `--dry-run` shows the slot, what it keeps and why it goes."""
    shop = Shop.of(database, tmp_path / "lake")
    shop.begin()
    shop.execute(*CAUSES["user catalog table"])
    with pytest.raises(StuckError):
        shop.drain()
    exit_status, shown, errors = shop.typed("recover", "--abandon-slot", "--dry-run")
    assert exit_status == 0, errors
    assert f"drop slot {shop.slot}, which can't be read any further and keeps" in shown
    exit_status, _, errors = shop.typed("recover", "--abandon-slot")
    assert exit_status == 2
    assert "it was not confirmed; answer yes, or pass --yes" in errors
    assert shop.slot in database.slots()
    assert shop.typed("recover")[0] == 2
