"""A random workload on a real PostgreSQL, from a seed: every kind of table and change the pipeline has to follow.

Comparing the lake with what it did belongs to `tests.support.lake.compare`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg
from psycopg.rows import tuple_row

from lakeproof.names import TableName

_DDL = """
CREATE SCHEMA w;
CREATE TABLE w.keyed (
    id bigint PRIMARY KEY, a text, doc text, n numeric(12,2), at timestamptz, f float8, j jsonb, tags text[]
);
ALTER TABLE w.keyed ALTER COLUMN doc SET STORAGE EXTERNAL;
ALTER TABLE w.keyed ALTER COLUMN tags SET STORAGE EXTERNAL;
CREATE TABLE w.composite (a int, b text, v text, day date, PRIMARY KEY (a, b));
CREATE TABLE w.numeric_key (k numeric PRIMARY KEY, v text, blob bytea);
ALTER TABLE w.numeric_key ALTER COLUMN v SET STORAGE EXTERNAL;
CREATE TABLE w.bag (x int, y text, z real, days date[], ratios float8[]);
ALTER TABLE w.bag REPLICA IDENTITY FULL;
CREATE TABLE w.log (message text, at timestamp, amount numeric(20,6));
"""

TABLES = tuple(TableName("w", name) for name in ("keyed", "composite", "numeric_key", "bag", "log"))

_TEXTS = (
    "", " ", "NULL", "na", 'quo"te', "back\\slash",
    "new\nline", "tab\t", "ünï", "e\u0301", "\u00e9", "🦆", "'", "{}", "~", "1:a",
)  # fmt: skip
_FLOATS = ("0", "-0", "NaN", "Infinity", "-Infinity", "1e-300", "0.1", "3.141592653589793", "-2.5e17")
_TIMES = (
    "2024-02-29 23:59:59.999999+00", "infinity", "-infinity",
    "0044-03-15 12:00:00+00 BC", "1970-01-01 00:00:00+00", "0999-12-31 00:00:00.5+00",
)  # fmt: skip
_DAYS = ("2024-02-29", "infinity", "0044-03-15 BC", "9999-12-31", "10000-01-01", "1582-10-10")
_STAMPS = ("2024-02-29 23:59:59.9", "infinity", "0001-01-01 00:00:00", "1900-01-01 00:00:00.000001")
_REALS = ("0", "-0", "1.1", "NaN", "1e-40", "16777217")
_DAY_ARRAYS = ("{}", "{2024-02-29,NULL}", "{infinity}", "[0:1]={2024-01-01,2024-01-02}", None)
_RATIOS = ("{0.1,-0,NULL}", "{0.1,0,NULL}", "{NaN,Infinity}", "{{0.1},{0.2}}", None)
_NUMERICS = ("1", "1.0", "1.00", "-5", "NaN", "123456789012345678901234567890.123456789", "1e-20", "0")


@dataclass
class RandomWorkload:
    """Random transactions over `w.*`; `step` runs one, `run` many until asked to stop.

    The seed decides everything the workload does (not how it interleaves with other sessions).
    """

    dsn: str
    seed: int
    keys: int = 40
    _random: random.Random = field(init=False)
    _connection: psycopg.Connection[tuple[object, ...]] = field(init=False)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._connection = psycopg.connect(self.dsn, autocommit=True, row_factory=tuple_row)

    def create_tables(self) -> None:
        """Make the tables, and a few rows in each so that a snapshot has something to copy."""
        self._connection.execute(_DDL)
        for _ in range(30):
            self.step()

    def close(self) -> None:
        """Close the session."""
        self._connection.close()

    def run(self, stop: threading.Event, pause_s: float = 0.002) -> int:
        """Run transactions until `stop` is set; gives how many."""
        done = 0
        while not stop.wait(pause_s):
            self.step()
            done += 1
        return done

    def step(self) -> None:
        """Run a transaction of one to eight random changes, some of them rolled back, wholly or to a savepoint."""
        cursor = self._connection.cursor()
        cursor.execute("BEGIN")
        for _ in range(self._random.randint(1, 8)):
            if self._random.random() < 0.1:
                cursor.execute("SAVEPOINT s")
                self._change(cursor)
                cursor.execute("ROLLBACK TO SAVEPOINT s")
            else:
                self._change(cursor)
        cursor.execute("ROLLBACK" if self._random.random() < 0.1 else "COMMIT")

    def _change(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        changes: tuple[tuple[float, Callable[[psycopg.Cursor[tuple[object, ...]]], None]], ...] = (
            (0.42, self._keyed),
            (0.15, self._composite),
            (0.15, self._numeric_key),
            (0.16, self._bag),
            (0.11, self._log),
            (0.01, self._truncate),
        )
        weights = [weight for weight, _ in changes]
        self._random.choices([change for _, change in changes], weights)[0](cursor)

    def _id(self) -> int:
        return self._random.randrange(self.keys)

    def _text(self) -> str | None:
        return None if self._random.random() < 0.15 else self._random.choice(_TEXTS)

    def _doc(self) -> str | None:
        if self._random.random() < 0.2:
            return self._text()
        return "".join(self._random.choices("abcdefgh 0123456789é", k=self._random.choice((2500, 9000))))

    def _tags(self) -> list[str | None] | str | None:
        """Small ones, ones that are stored out of line, and of either sort ones of two dimensions."""
        if self._random.random() < 0.7:
            few: tuple[str | None, ...] = ("{}", None, '{a,NULL,"x\\"y"}', '{"{}",""}', "{{a,b},{c,NULL}}", "[0:0]={z}")
            return self._random.choice(few)
        many = [self._random.choice((*_TEXTS, None)) for _ in range(900)]
        return many if self._random.random() < 0.7 else "{" + ",".join(["{a,b}"] * 500) + "}"

    def _keyed(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        way = self._random.random()
        if way < 0.40:
            cursor.execute(
                "INSERT INTO w.keyed VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET"
                " a = excluded.a, n = excluded.n, at = excluded.at, f = excluded.f",
                (
                    self._id(),
                    self._text(),
                    self._doc(),
                    self._random.choice((None, "NaN", "0", "-1.5", "9999999999.99")),
                    self._random.choice(_TIMES),
                    self._random.choice(_FLOATS),
                    self._random.choice(('{"b": 1, "a": [1.0, null]}', "null", None)),
                    self._tags(),
                ),
            )
        elif way < 0.62:
            # The document beside it is stored out of line and stays as it was: unchanged TOAST.
            cursor.execute("UPDATE w.keyed SET a = %s WHERE id = %s", (self._text(), self._id()))
        elif way < 0.70:
            cursor.execute("UPDATE w.keyed SET doc = %s WHERE id = %s", (self._doc(), self._id()))
        elif way < 0.80:
            self._move(cursor, self._id(), self._id())
        elif way < 0.86:
            self._swap(cursor, self._id(), self._id())
        else:
            cursor.execute("DELETE FROM w.keyed WHERE id = %s", (self._id(),))

    def _move(self, cursor: psycopg.Cursor[tuple[object, ...]], old: int, new: int) -> None:
        cursor.execute(
            "UPDATE w.keyed SET id = %(new)s, a = a || 'm' WHERE id = %(old)s"
            " AND NOT EXISTS (SELECT 1 FROM w.keyed WHERE id = %(new)s)",
            {"old": old, "new": new},
        )

    def _swap(self, cursor: psycopg.Cursor[tuple[object, ...]], one: int, other: int) -> None:
        aside = self.keys + 1000
        self._move(cursor, one, aside)
        self._move(cursor, other, one)
        self._move(cursor, aside, other)
        # If `other` was taken after all, the row must not stay aside: later swaps need the place.
        cursor.execute("DELETE FROM w.keyed WHERE id = %s", (aside,))

    def _composite(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        a, b = self._random.randrange(4), self._random.choice(_TEXTS)
        if self._random.random() < 0.6:
            cursor.execute(
                "INSERT INTO w.composite VALUES (%s, %s, %s, %s) ON CONFLICT (a, b) DO UPDATE SET v = excluded.v",
                (a, b, self._text(), self._random.choice(_DAYS)),
            )
        elif self._random.random() < 0.5:
            cursor.execute(
                "UPDATE w.composite SET a = a + 10 WHERE a = %(a)s AND b = %(b)s"
                " AND NOT EXISTS (SELECT 1 FROM w.composite WHERE a = %(a)s + 10 AND b = %(b)s)",
                {"a": a, "b": b},
            )
        else:
            cursor.execute("DELETE FROM w.composite WHERE b = %s", (b,))

    def _numeric_key(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        k, new = self._random.choice(_NUMERICS), self._random.choice(_NUMERICS)
        way = self._random.random()
        if way < 0.5:
            blob = self._random.randbytes(self._random.randrange(4))
            cursor.execute(
                "INSERT INTO w.numeric_key VALUES (%s, %s, %s) ON CONFLICT (k) DO UPDATE SET blob = excluded.blob",
                (k, self._doc(), blob),
            )
        elif way < 0.8:
            # 1 and 1.00 are equal for the operator and different in their bits: such an update is a key move.
            cursor.execute(
                "UPDATE w.numeric_key SET k = %(new)s WHERE k = %(k)s"
                " AND NOT EXISTS (SELECT 1 FROM w.numeric_key WHERE k = %(new)s AND k <> %(k)s)",
                {"k": k, "new": new},
            )
        else:
            cursor.execute("DELETE FROM w.numeric_key WHERE k = %s", (k,))

    def _bag(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        x, y = self._random.randrange(5), self._text()
        way = self._random.random()
        if way < 0.6:
            row = (x, y, self._random.choice(_REALS), self._random.choice(_DAY_ARRAYS), self._random.choice(_RATIOS))
            cursor.execute("INSERT INTO w.bag VALUES (%s, %s, %s, %s, %s)", row)
        elif way < 0.8:
            cursor.execute("UPDATE w.bag SET y = %s WHERE x = %s", (y, x))
        else:
            cursor.execute("DELETE FROM w.bag WHERE ctid = (SELECT min(ctid) FROM w.bag WHERE x = %s)", (x,))

    def _log(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        cursor.execute("INSERT INTO w.log VALUES (%s, %s, %s)", (self._text(), self._random.choice(_STAMPS), "12.5"))

    def _truncate(self, cursor: psycopg.Cursor[tuple[object, ...]]) -> None:
        cursor.execute(
            self._random.choice(("TRUNCATE w.keyed, w.bag", "TRUNCATE w.composite", "TRUNCATE w.numeric_key"))
        )
