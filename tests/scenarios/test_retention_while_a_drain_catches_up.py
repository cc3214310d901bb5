"""A drain was down for longer than the landing keeps what the lake has, and the retention runs while it catches up.

The newest reading of the catalog is from after what the stream still brings: the one before it says what columns that has.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from lakeproof.failpoints import watched
from lakeproof.landing.retention import first_needed, put_chain_start, remove_below
from tests.support.ingest.fix_drain import Drained, landed_rows

pytestmark = pytest.mark.postgres
LATER = datetime.now(timezone.utc) + timedelta(days=1)


class _ConnectionLostError(Exception):
    pass


def _lose_it(place: str) -> None:
    if place == "drain.decoded":
        raise _ConnectionLostError


def test_older_rows_keep_their_columns_after_what_the_lake_has_was_removed(drained: Drained) -> None:
    """Column `a` was made anew meanwhile: the row from before does not get the number of the new one."""
    database = drained.database
    database.execute("CREATE TABLE t (id int PRIMARY KEY, a text)")
    drained.begin()
    for number in range(5):
        database.execute(f"INSERT INTO t VALUES ({number}, 'first')")  # noqa: S608  the test's own
        drained.drain()
    database.execute(
        "INSERT INTO t VALUES (10, 'old')",
        "ALTER TABLE t DROP a, ADD a text",
        "INSERT INTO t VALUES (11, 'new')",
    )
    # It has read the catalog, and is lost before it has landed a row.
    with watched(_lose_it), pytest.raises(_ConnectionLostError):
        drained.drain()
    chain = drained.chain()
    put_chain_start(chain, first_needed(chain, chain.next_number, chain.end, LATER))
    chain = drained.chain()
    assert chain.first_number > 1
    remove_below(chain, chain.first_number)
    drained.drain()
    numbers = {row["id"]: version.columns[1].attnum for version, row in landed_rows(drained.chain())}
    assert numbers[10] == 0, "which of both it has, nobody can know: it is not guessed"
