"""Makes the shop's schema, its first rows, and one random transaction at a time.

How many transactions run, how fast and until when belongs to `demo.workload`; nothing here knows lakeproof.
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
# Half as large again as the page that PostgreSQL would have to keep it in.
MANUAL_BYTES = 12_000

_COUNTRIES = ("AT", "BR", "CH", "DE", "FR", "IN", "JP", "ZA")
_STATUSES = ("placed", "paid", "packed", "sent", "cancelled")
_TAGS = ("new", "regular", "wholesale", "it's late", 'quoted "tag"', "comma, tag", "")
_NOTES = (None, "", "leave at the door", "línea 2\nsecond line", "tab\there, back\\slash", "☃ fragile")
_BEGIN = datetime(2024, 1, 1, tzinfo=timezone.utc)

Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


def make_schema(connection: Connection) -> None:
    """Create the schema and its tables; `connection` is in a transaction of the caller's."""
    connection.execute((Path(__file__).parent / "shop.sql").read_bytes())


def fill(connection: Connection, chance: random.Random) -> None:
    """Load the first customers, products, orders and lines; the same for the same `chance`."""
    _copy(connection, "COPY shop.customers (id, email, name, country, joined_at, tags, profile) FROM STDIN", (
        (n, f"customer{n}@example.org", f"Customer {n}", chance.choice(_COUNTRIES), _moment(chance), _tags(chance),
         json.dumps(_profile(chance)))
        for n in range(1, CUSTOMERS + 1)
    ))  # fmt: skip
    _copy(connection, "COPY shop.products (code, title, price, stock, weight_kg, attributes, manual) FROM STDIN", (
        (f"P{n:04}", f"Product {n}", _price(chance), 1_000_000, chance.choice((None, 0.1, 1 / 3, 12.5)),
         json.dumps({"colour": chance.choice(("red", "blue")), "size": [n, n + 1]}), _manual(chance))
        for n in range(1, PRODUCTS + 1)
    ))  # fmt: skip
    orders = [_uuid(chance) for _ in range(ORDERS)]
    _copy(connection, "COPY shop.orders (id, customer_id, status, placed_at, delivery_day, total, note) FROM STDIN", (
        (order, chance.randint(1, CUSTOMERS), chance.choice(_STATUSES), (moment := _moment(chance)),
         (moment + timedelta(days=3)).date(), _price(chance), chance.choice(_NOTES))
        for order in orders
    ))  # fmt: skip
    _copy(connection, "COPY shop.order_lines FROM STDIN", (
        (order, line, f"P{chance.randint(1, PRODUCTS):04}", chance.randint(1, 9), _price(chance),
         chance.choice((None, 0.1, 0.25)))
        for order in orders
        for line in range(1, chance.randint(2, 4))
    ))  # fmt: skip


def transaction(connection: Connection, chance: random.Random) -> None:
    """One business transaction, committed or (rarely, on purpose) rolled back.

    Raises what PostgreSQL raises; a deadlock or a key taken meanwhile by another thread is the caller's to shrug off.
    """
    act = chance.choices(_ACTS, _WEIGHTS)[0]
    with connection.transaction(force_rollback=chance.random() < _ROLLED_BACK):
        act(connection, chance)


def _place_order(connection: Connection, chance: random.Random) -> None:
    order, customer = _uuid(chance), chance.randint(1, CUSTOMERS)
    # In one order, so that two of these can't wait for each other.
    codes = sorted(_codes(connection, chance, chance.randint(1, 4)))
    prices = [_price(chance) for _ in codes]
    connection.execute(
        "INSERT INTO shop.orders VALUES (%s, %s, 'placed', now(), current_date + 3, %s, %s)",
        (order, customer, sum(prices), chance.choice(_NOTES)),
    )
    for line, (code, price) in enumerate(zip(codes, prices, strict=True), start=1):
        connection.execute(
            "INSERT INTO shop.order_lines VALUES (%s, %s, %s, %s, %s, %s)",
            (order, line, code, chance.randint(1, 9), price, chance.choice((None, 0.1, 0.25))),
        )
        # The row holds the manual, out of line and not touched here.
        connection.execute("UPDATE shop.products SET stock = stock - 1 WHERE code = %s", (code,))
    connection.execute("UPDATE shop.customers SET balance = balance - %s WHERE id = %s", (sum(prices), customer))


def _move_order_on(connection: Connection, chance: random.Random) -> None:
    connection.execute(
        "UPDATE shop.orders SET status = %s WHERE id = %s", (chance.choice(_STATUSES), _order(connection, chance))
    )


def _change_customer(connection: Connection, chance: random.Random) -> None:
    until = chance.choice(("infinity", "2031-01-01 00:00:00.000001+00", "0044-03-15 12:00:00+00 BC"))
    connection.execute(
        "UPDATE shop.customers SET tags = %s, profile = %s, valid_until = %s WHERE id = %s",
        (_tags(chance), json.dumps(_profile(chance)), until, chance.randint(1, CUSTOMERS)),
    )


def _reprice(connection: Connection, chance: random.Random) -> None:
    (code,) = _codes(connection, chance, 1)
    connection.execute("UPDATE shop.products SET price = %s WHERE code = %s", (_price(chance), code))


def _rewrite_manual(connection: Connection, chance: random.Random) -> None:
    (code,) = _codes(connection, chance, 1)
    connection.execute("UPDATE shop.products SET manual = %s WHERE code = %s", (_manual(chance), code))


def _delete_order(connection: Connection, chance: random.Random) -> None:
    connection.execute("DELETE FROM shop.orders WHERE id = %s", (_order(connection, chance),))


def _renumber_lines(connection: Connection, chance: random.Random) -> None:
    connection.execute(
        "UPDATE shop.order_lines SET line_no = line_no + 100 WHERE order_id = %s", (_order(connection, chance),)
    )


def _rename_product(connection: Connection, chance: random.Random) -> None:
    (code,) = _codes(connection, chance, 1)
    connection.execute(
        "UPDATE shop.products SET code = %s WHERE code = %s", (f"{code[:5]}-{chance.random():.6f}", code)
    )


_ACTS: tuple[Callable[[Connection, random.Random], None], ...] = (
    _place_order, _move_order_on, _change_customer, _reprice, _rewrite_manual, _delete_order, _renumber_lines,
    _rename_product,
)  # fmt: skip
_WEIGHTS = (50, 20, 10, 8, 1, 7, 3, 0.2)
_ROLLED_BACK = 0.02


def _codes(connection: Connection, chance: random.Random, count: int) -> list[str]:
    wanted = [f"P{chance.randint(1, PRODUCTS):04}" for _ in range(count)]
    rows = connection.execute("SELECT code FROM shop.products WHERE left(code, 5) = ANY (%s)", (wanted,)).fetchall()
    return [str(row[0]) for row in rows]


def _order(connection: Connection, chance: random.Random) -> uuid.UUID | None:
    query = "SELECT id FROM shop.orders WHERE id >= %s ORDER BY id LIMIT 1"
    row = connection.execute(query, (_uuid(chance),)).fetchone()
    return row[0] if row else None


def _copy(connection: Connection, statement: str, rows: Iterator[tuple[object, ...]]) -> None:
    with connection.cursor().copy(statement.encode()) as copy:
        for row in rows:
            copy.write_row(row)


def _uuid(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128), version=4)


def _price(chance: random.Random) -> Decimal:
    return Decimal(chance.randint(100, 99_999)) / 100


def _moment(chance: random.Random) -> datetime:
    return _BEGIN + timedelta(microseconds=chance.randrange(63_072_000_000_000))


def _tags(chance: random.Random) -> list[str]:
    return chance.sample(_TAGS, chance.randint(0, 3))


def _profile(chance: random.Random) -> dict[str, Any]:
    return {"visits": chance.randint(0, 500), "score": chance.random(), "language": chance.choice(("de", "en", None))}


def _manual(chance: random.Random) -> str:
    # Hexadecimal digits of random bytes: nothing for a compressor.
    return chance.randbytes(MANUAL_BYTES // 2).hex()
