"""A small database in the manner of TPC-H: its tables, rows and changes by chance, and nine of its queries.

Running them does not belong here (`tests/properties/views/test_tpch_views.py`). The queries are TPC-H's with fixed
parameters, in what PostgreSQL and Spark both understand. Averages are given as a sum and a count, since the dialects
round a quotient to different scales; queries of the first rows give all rows, since equal ones may come in any order.
"""

from __future__ import annotations

import random
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

DDL = (
    "CREATE TABLE region (r_regionkey int PRIMARY KEY, r_name text)",
    "CREATE TABLE nation (n_nationkey int PRIMARY KEY, n_name text, n_regionkey int)",
    "CREATE TABLE supplier (s_suppkey int PRIMARY KEY, s_name text, s_nationkey int)",
    """CREATE TABLE customer (c_custkey int PRIMARY KEY, c_name text, c_nationkey int, c_acctbal numeric(15,2),
    c_mktsegment text)""",
    """CREATE TABLE orders (o_orderkey int PRIMARY KEY, o_custkey int, o_totalprice numeric(15,2), o_orderdate date,
    o_orderpriority text, o_shippriority int, o_comment text)""",
    """CREATE TABLE lineitem (l_orderkey int, l_linenumber int, l_suppkey int, l_quantity numeric(15,2),
    l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2), l_returnflag text, l_linestatus text,
    l_shipdate date, l_commitdate date, l_receiptdate date, l_shipmode text, PRIMARY KEY (l_orderkey, l_linenumber))""",
)
TABLES = ("region", "nation", "supplier", "customer", "orders", "lineitem")
_SEGMENTS = ("BUILDING", "MACHINERY", "FURNITURE")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", None)
_MODES = ("MAIL", "SHIP", "AIR")
_FIRST = date(1993, 6, 1)
_DAYS = 800

QUERIES = {
    "q1": """SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
        sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price, count(l_quantity) AS quantities, count(*) AS count_order
        FROM lineitem WHERE l_shipdate <= DATE '1995-02-01' GROUP BY l_returnflag, l_linestatus""",
    "q3": """SELECT l_orderkey, sum(l_extendedprice * (1 - l_discount)) AS revenue, o_orderdate, o_shippriority
        FROM customer, orders, lineitem WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey
        AND l_orderkey = o_orderkey AND o_orderdate < DATE '1994-09-15' AND l_shipdate > DATE '1994-03-15'
        GROUP BY l_orderkey, o_orderdate, o_shippriority""",
    "q4": """SELECT o_orderpriority, count(*) AS order_count FROM orders WHERE o_orderdate >= DATE '1994-01-01'
        AND o_orderdate < DATE '1995-01-01' AND EXISTS (SELECT * FROM lineitem
        WHERE l_orderkey = o_orderkey AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority""",
    "q5": """SELECT n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM customer, orders, lineitem, supplier, nation, region WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey AND s_nationkey = n_nationkey
        AND n_regionkey = r_regionkey AND r_name = 'ASIA' GROUP BY n_name""",
    "q6": """SELECT sum(l_extendedprice * l_discount) AS revenue FROM lineitem WHERE l_shipdate >= DATE '1994-01-01'
        AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.02 AND 0.07 AND l_quantity < 24""",
    "q10": """SELECT c_custkey, c_name, sum(l_extendedprice * (1 - l_discount)) AS revenue, c_acctbal, n_name
        FROM customer, orders, lineitem, nation WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey
        AND l_returnflag = 'R' AND c_nationkey = n_nationkey GROUP BY c_custkey, c_name, c_acctbal, n_name""",
    "q12": """SELECT l_shipmode,
        sum(CASE WHEN o_orderpriority = '1-URGENT' OR o_orderpriority = '2-HIGH' THEN 1 ELSE 0 END) AS high_line_count,
        sum(CASE WHEN o_orderpriority <> '1-URGENT' AND o_orderpriority <> '2-HIGH' THEN 1 ELSE 0 END) AS low_line_count
        FROM orders, lineitem WHERE o_orderkey = l_orderkey AND l_shipmode IN ('MAIL', 'SHIP')
        AND l_commitdate < l_receiptdate AND l_shipdate < l_commitdate GROUP BY l_shipmode""",
    "q13": """SELECT c_count, count(*) AS custdist FROM (SELECT c_custkey, count(o_orderkey) AS c_count FROM customer
        LEFT OUTER JOIN orders ON c_custkey = o_custkey AND o_comment NOT LIKE '%special%' GROUP BY c_custkey) AS c_orders
        GROUP BY c_count""",
    "q18": """SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
        FROM customer, orders, lineitem WHERE o_orderkey IN (SELECT l_orderkey FROM lineitem GROUP BY l_orderkey
        HAVING sum(l_quantity) > 60) AND c_custkey = o_custkey AND o_orderkey = l_orderkey
        GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice""",
}


class Rows:
    """Makes rows by chance; a change is a list of statements with their values."""

    def __init__(self, chance: random.Random, orders: int) -> None:
        self.chance = chance
        self.orders = list(range(1, orders + 1))
        self.next_order = orders + 1

    def first(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the statements that fill the tables."""
        statements: list[tuple[str, tuple[Any, ...]]] = [
            _insert("region", number, name) for number, name in enumerate(("ASIA", "EUROPE"))
        ]
        statements += [_insert("nation", number, f"nation {number}", number % 2) for number in range(6)]
        statements += [_insert("supplier", number, f"supplier {number}", number % 6) for number in range(8)]
        statements += [_insert("customer", number, f"customer {number}", *self._customer()) for number in range(30)]
        return statements + [statement for order in self.orders for statement in self._order(order)]

    def change(self) -> list[tuple[str, tuple[Any, ...]]]:
        """Return the statements of one round: orders come and go, lines and customers become others."""
        gone, changed = self.chance.sample(self.orders, 2)
        self.orders.remove(gone)
        self.orders.append(self.next_order)
        self.next_order += 1
        return [
            ("DELETE FROM lineitem WHERE l_orderkey = %s", (gone,)),
            ("DELETE FROM orders WHERE o_orderkey = %s", (gone,)),
            *self._order(self.orders[-1]),
            (
                "UPDATE lineitem SET l_quantity = %s, l_discount = %s, l_returnflag = %s WHERE l_orderkey = %s",
                (self._money(1, 50), self._cents(10), self.chance.choice("RAN"), changed),
            ),
            (
                "UPDATE orders SET o_custkey = %s, o_orderpriority = %s WHERE o_orderkey = %s",
                (self.chance.randrange(30), self.chance.choice(_PRIORITIES), self.chance.choice(self.orders)),
            ),
            (
                "UPDATE customer SET c_nationkey = %s, c_acctbal = %s, c_mktsegment = %s WHERE c_custkey = %s",
                (*self._customer(), self.chance.randrange(30)),
            ),
        ]

    def _customer(self) -> tuple[Any, ...]:
        return self.chance.randrange(6), self._money(-100, 1000), self.chance.choice(_SEGMENTS)

    def _order(self, key: int) -> list[tuple[str, tuple[Any, ...]]]:
        day, comment = self._day(), self.chance.choice(["", "special", "a special request", None])
        priority = self.chance.choice(_PRIORITIES)
        total = self._money(100, 9000)
        lines = [self._line(key, number, day) for number in range(1, self.chance.randrange(2, 6))]
        return [_insert("orders", key, self.chance.randrange(30), total, day, priority, 0, comment), *lines]

    def _line(self, order: int, number: int, day: date) -> tuple[str, tuple[Any, ...]]:
        shipped, committed, received = (day + timedelta(self.chance.randrange(1, 60)) for _ in range(3))
        quantity = None if self.chance.random() < 0.05 else self._money(1, 50)
        price, discount, tax = self._money(10, 900), self._cents(10), self._cents(8)
        flags = self.chance.choice("RAN"), self.chance.choice("OF")
        days = shipped, committed, received, self.chance.choice(_MODES)
        return _insert(
            "lineitem", order, number, self.chance.randrange(8), quantity, price, discount, tax, *flags, *days
        )

    def _day(self) -> date:
        return _FIRST + timedelta(self.chance.randrange(_DAYS))

    def _money(self, low: int, high: int) -> Decimal:
        return Decimal(self.chance.randrange(low * 100, high * 100)) / 100

    def _cents(self, high: int) -> Decimal:
        return Decimal(self.chance.randrange(high + 1)) / 100


def _insert(table: str, *values: Any) -> tuple[str, tuple[Any, ...]]:
    return f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(values))})", values  # noqa: S608  the tests' own tables
