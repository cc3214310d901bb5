"""Creates the shop's schema and its first rows, and runs one random transaction at a time.

The number and rate of transactions do not belong here (`demo.workload`); nothing here knows lakeproof.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import psycopg

CUSTOMERS = 2_000
PRODUCTS = 200
ORDERS = 5_000
# Half as large again as a page, so PostgreSQL has to store it out of line.
MANUAL_BYTES = 12_000

_COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "ZA")
_STATUSES = ("placed", "paid", "packed", "sent", "cancelled")
_TAGS = ("new", "regular", "wholesale", "it's late", 'quoted "tag"', "comma, tag", "")
_NOTES = (None, "", "leave at the door", "línea 2\nsecond line", "tab\there, back\\slash", "☃ fragile")
_FIRST_DAY = datetime(2024, 1, 1, tzinfo=timezone.utc)

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


def create_schema(connection: Connection) -> None:
    """Create the schema and its tables in the caller's transaction."""
    connection.execute((Path(__file__).parent / "shop.sql").read_bytes())


def fill(connection: Connection, rng: random.Random) -> None:
    """Load the first customers, products, orders and lines; the same `rng` gives the same rows."""
    _copy(connection, "COPY shop.customers (id, email, name, country, joined_at, tags, profile) FROM STDIN", (
        (n, f"customer{n}@example.org", f"Customer {n}", rng.choice(_COUNTRIES), _moment(rng), _tags(rng),
         json.dumps(_profile(rng)))
        for n in range(1, CUSTOMERS + 1)
    ))  # fmt: skip
    _copy(connection, "COPY shop.products (code, title, price, stock, weight_kg, attributes, manual) FROM STDIN", (
        (f"P{n:04}", f"Product {n}", _price(rng), 1_000_000, rng.choice((None, 0.1, 1 / 3, 12.5)),
         json.dumps({"colour": rng.choice(("red", "blue")), "size": [n, n + 1]}), _manual(rng))
        for n in range(1, PRODUCTS + 1)
    ))  # fmt: skip
    orders = [_uuid(rng) for _ in range(ORDERS)]
    _copy(connection, "COPY shop.orders (id, customer_id, status, placed_at, delivery_day, total, note) FROM STDIN", (
        (order, rng.randint(1, CUSTOMERS), rng.choice(_STATUSES), (moment := _moment(rng)),
         (moment + timedelta(days=3)).date(), _price(rng), rng.choice(_NOTES))
        for order in orders
    ))  # fmt: skip
    _copy(connection, "COPY shop.order_lines FROM STDIN", (
        (order, line, f"P{rng.randint(1, PRODUCTS):04}", rng.randint(1, 9), _price(rng),
         rng.choice((None, 0.1, 0.25)))
        for order in orders
        for line in range(1, rng.randint(2, 4))
    ))  # fmt: skip


def transaction(connection: Connection, rng: random.Random) -> None:
    """Run one business transaction; it is committed, or rarely, on purpose, rolled back.

    Raises PostgreSQL's errors; the caller should ignore a deadlock, or a key that another thread has used meanwhile.
    """
    action = rng.choices(_ACTIONS, _WEIGHTS)[0]
    with connection.transaction(force_rollback=rng.random() < _ROLLED_BACK):
        action(connection, rng)


def _place_order(connection: Connection, rng: random.Random) -> None:
    order, customer = _uuid(rng), rng.randint(1, CUSTOMERS)
    # Sorted, so that two of these transactions can't wait for each other.
    codes = sorted(_codes(connection, rng, rng.randint(1, 4)))
    prices = [_price(rng) for _ in codes]
    connection.execute(
        "INSERT INTO shop.orders VALUES (%s, %s, 'placed', now(), current_date + 3, %s, %s)",
        (order, customer, sum(prices), rng.choice(_NOTES)),
    )
    for line, (code, price) in enumerate(zip(codes, prices, strict=True), start=1):
        connection.execute(
            "INSERT INTO shop.order_lines VALUES (%s, %s, %s, %s, %s, %s)",
            (order, line, code, rng.randint(1, 9), price, rng.choice((None, 0.1, 0.25))),
        )
        # The row has the manual, stored out of line and not changed here.
        connection.execute("UPDATE shop.products SET stock = stock - 1 WHERE code = %s", (code,))
    connection.execute("UPDATE shop.customers SET balance = balance - %s WHERE id = %s", (sum(prices), customer))


def _change_status(connection: Connection, rng: random.Random) -> None:
    connection.execute(
        "UPDATE shop.orders SET status = %s WHERE id = %s", (rng.choice(_STATUSES), _order(connection, rng))
    )


def _change_customer(connection: Connection, rng: random.Random) -> None:
    until = rng.choice(("infinity", "2031-01-01 00:00:00.000001+00", "0044-03-15 12:00:00+00 BC"))
    connection.execute(
        "UPDATE shop.customers SET tags = %s, profile = %s, valid_until = %s WHERE id = %s",
        (_tags(rng), json.dumps(_profile(rng)), until, rng.randint(1, CUSTOMERS)),
    )


def _reprice(connection: Connection, rng: random.Random) -> None:
    (code,) = _codes(connection, rng, 1)
    connection.execute("UPDATE shop.products SET price = %s WHERE code = %s", (_price(rng), code))


def _rewrite_manual(connection: Connection, rng: random.Random) -> None:
    (code,) = _codes(connection, rng, 1)
    connection.execute("UPDATE shop.products SET manual = %s WHERE code = %s", (_manual(rng), code))


def _delete_order(connection: Connection, rng: random.Random) -> None:
    connection.execute("DELETE FROM shop.orders WHERE id = %s", (_order(connection, rng),))


def _renumber_lines(connection: Connection, rng: random.Random) -> None:
    connection.execute(
        "UPDATE shop.order_lines SET line_no = line_no + 100 WHERE order_id = %s", (_order(connection, rng),)
    )


def _rename_product(connection: Connection, rng: random.Random) -> None:
    (code,) = _codes(connection, rng, 1)
    connection.execute("UPDATE shop.products SET code = %s WHERE code = %s", (f"{code[:5]}-{rng.random():.6f}", code))


_ACTIONS: tuple[Callable[[Connection, random.Random], None], ...] = (
    _place_order, _change_status, _change_customer, _reprice, _rewrite_manual, _delete_order, _renumber_lines,
    _rename_product,
)  # fmt: skip
_WEIGHTS = (50, 20, 10, 8, 1, 7, 3, 0.2)
_ROLLED_BACK = 0.02


def _codes(connection: Connection, rng: random.Random, count: int) -> list[str]:
    codes = [f"P{rng.randint(1, PRODUCTS):04}" for _ in range(count)]
    rows = connection.execute("SELECT code FROM shop.products WHERE left(code, 5) = ANY (%s)", (codes,)).fetchall()
    return [str(row[0]) for row in rows]


def _order(connection: Connection, rng: random.Random) -> uuid.UUID | None:
    query = "SELECT id FROM shop.orders WHERE id >= %s ORDER BY id LIMIT 1"
    row = connection.execute(query, (_uuid(rng),)).fetchone()
    return row[0] if row else None


def _copy(connection: Connection, statement: str, rows: Iterator[tuple[object, ...]]) -> None:
    with connection.cursor().copy(statement.encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _uuid(rng: random.Random) -> uuid.UUID:
    return uuid.UUID(int=rng.getrandbits(128), version=4)


def _price(rng: random.Random) -> Decimal:
    return Decimal(rng.randint(100, 99_999)) / 100


def _moment(rng: random.Random) -> datetime:
    return _FIRST_DAY + timedelta(microseconds=rng.randrange(63_072_000_000_000))


def _tags(rng: random.Random) -> list[str]:
    return rng.sample(_TAGS, rng.randint(0, 3))


def _profile(rng: random.Random) -> dict[str, Any]:
    return {"visits": rng.randint(0, 500), "score": rng.random(), "language": rng.choice(("de", "en", None))}


def _manual(rng: random.Random) -> str:
    # Hexadecimal digits of random bytes hardly compress.
    return rng.randbytes(MANUAL_BYTES // 2).hex()
