"""DDL at random among changes of rows, drained now and then: every row lands with the numbers that its columns had.

The oracle is PostgreSQL: within the transaction of each row the catalog is asked for the numbers. That the lake then equals
the source is in `test_schema_random.py`. `LAKEPROOF_SEED` repeats a run.
"""

from __future__ import annotations

import json
import os
import random
from typing import Any

import psycopg
import pytest
from typing_extensions import LiteralString

from tests.support.ingest.fix_drain import Drained, landed_rows
from tests.support.workloads.altering import Altering

pytestmark = pytest.mark.postgres

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_NUMBERS: LiteralString = """SELECT attname::text, attnum FROM pg_attribute
WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"""
# Each change of rows leaves one here, with what the catalog had.
_SEEN: LiteralString = """INSERT INTO seen (numbers) SELECT json_object_agg(attname, attnum)::text FROM pg_attribute
WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped"""


def _see(cursor: psycopg.Cursor[Any]) -> None:
    cursor.execute(_SEEN)


def _wrong(rows: list[tuple[Any, dict[str, Any]]], after: set[int], *, apart: bool) -> list[str]:
    """Return the mistakes in the schemas of a batch's rows; `after` are the numbers at its end."""
    wrong, seen = [], []
    for version, row in rows:
        if version.table.name == "t":
            seen.append({c.name: c.attnum for c in version.columns})
            continue
        right = json.loads(row["numbers"])
        for numbers in seen:
            for name, number in numbers.items():
                early = number < 0 and right[name] not in after
                lost = number == 0 and not apart
                if not (number == right[name] or early or lost):
                    wrong.append(f"{name} of {numbers} is {right[name]}")
        seen = []
    return wrong


@pytest.mark.parametrize(("apart", "rounds"), [(True, 6), (False, 6), pytest.param(True, 60, marks=pytest.mark.full)])
def test_rows_land_with_the_numbers_that_they_had(drained: Drained, rounds: int, *, apart: bool) -> None:
    """No number is wrong; if all columns can be distinguished, none is unknown."""
    chance = random.Random(SEED)
    database = drained.database
    database.execute("CREATE TABLE seen (id serial PRIMARY KEY, numbers text)")
    table = Altering(database, "t", chance, bag=False)
    drained.begin()
    landed = 0
    for number in range(rounds):
        if apart:
            table.apart()
        with database.connect() as connection, connection.cursor() as cursor:
            for _ in range(8):
                table.step(cursor, _see)
            table.touch(cursor)
            _see(cursor)
        drained.drain()
        rows = landed_rows(drained.chain())
        after = {attnum for _, attnum in database.rows(_NUMBERS)}
        wrong = _wrong(rows[landed:], after, apart=apart)
        assert not wrong, f"round {number}, LAKEPROOF_SEED={SEED}: {wrong[:5]}"
        landed = len(rows)
