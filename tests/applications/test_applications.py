"""Schemas in the likeness of real applications, changed at random beside a drain: every table of the lake is the source's.

`LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.applications.alterations import Alterations
from tests.applications.application import Application
from tests.applications.shop import SHOP
from tests.fix_postgres import Database

pytestmark = pytest.mark.postgres
SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)


@pytest.mark.parametrize("rounds", [2, pytest.param(30, marks=pytest.mark.full)])
def test_a_shop_is_in_the_lake_as_it_is(database: Database, tmp_path: Path, rounds: int) -> None:
    """Rows alone, of every kind of type, key and partition."""
    application = Application(database, tmp_path, SEED)
    with application.begun(SHOP, 200):
        for _ in range(rounds):
            application.mutator.ticks(150)
            application.compact()
            application.mutator.ticks(150)
            assert application.settle() == set()


@pytest.mark.full
def test_a_shop_that_is_altered_is_in_the_lake_as_it_is(database: Database, tmp_path: Path) -> None:
    """DDL of every kind between the rows; what is held needs a copy, and a copy is enough."""
    application = Application(database, tmp_path, SEED)
    with application.begun(SHOP, 200):
        altered(application, Alterations(application.mutator, SEED), rounds=12, times=4)


def altered(application: Application, alterations: Alterations, rounds: int, times: int, ticks: int = 60) -> None:
    """Change rows and tables in rounds; after each of them every table is compared, and what is held is copied."""
    for number in range(rounds):
        alterations.expected.clear()
        first = len(alterations.done)
        for _ in range(times):
            application.mutator.ticks(ticks)
            alterations.alter()
            if alterations.rng.random() < 0.3:
                application.compact()
        application.mutator.ticks(ticks)
        waiting = application.settle()
        message = f"seed {SEED}, round {number}: {alterations.done[first:]}"
        needless = {t: application.held.get(t) for t in waiting if not alterations.may_wait(t)}
        assert not needless, f"{message}, held: {needless}"
        application.copied_again()
