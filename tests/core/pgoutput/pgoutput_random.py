"""Random tables, values and transactions as pgoutput messages, from a seed.

They come as a server sends them: a Relation before the first change, old images where the identity asks for them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, TableName, Xid
from lakeproof.pgoutput.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    OldImage,
    Origin,
    Relation,
    RelationColumn,
    Truncate,
    TypeName,
    Update,
    Value,
    Values,
)
from lakeproof.schema import Identity, SchemaVersion
from lakeproof.values.catalog_kinds import CatalogType, make_column
from lakeproof.values.commit_times import of_number
from lakeproof.values.types import decimal_typmod

KIND_OIDS = {
    "bool": 16, "bytea": 17, "name": 19, "int8": 20, "int2": 21, "int4": 23, "text": 25, "float4": 700, "float8": 701,
    "bpchar": 1042, "varchar": 1043, "date": 1082, "timestamp": 1114, "timestamptz": 1184, "numeric": 1700, "uuid": 2950,
    "exact_text": 3802, "enum": 70000,
}  # fmt: skip
ARRAY_OIDS = {
    "bool[]": 1000, "bytea[]": 1001, "name[]": 1003, "int8[]": 1016, "int2[]": 1005, "int4[]": 1007, "text[]": 1009,
    "float4[]": 1021, "float8[]": 1022, "bpchar[]": 1014, "varchar[]": 1015, "date[]": 1182, "timestamp[]": 1115,
    "timestamptz[]": 1185, "numeric[]": 1231, "uuid[]": 2951, "enum[]": 70001,
}  # fmt: skip
OIDS = KIND_OIDS | ARRAY_OIDS
KIND_BY_OID = {oid: kind for kind, oid in OIDS.items()}
NUMERIC_TYPMOD = decimal_typmod(10, 2)
START_TIME_US = 1_700_000_000_000_000


def resolve(relation: Relation, *_: object) -> SchemaVersion:
    """The schema version of a random relation, its types looked up as in a catalog that has one enum."""
    columns = tuple(
        make_column(c.name, _catalog_type(c.type_oid), c.typmod, attnum=attnum, identity=c.identity)
        for attnum, c in enumerate(relation.columns, 1)
    )
    key = tuple(c.name for c in columns if c.identity) if relation.identity is Identity.DEFAULT else ()
    return SchemaVersion(TableName(relation.namespace, relation.name), relation.oid, relation.identity, columns, key)


def _catalog_type(oid: Oid) -> CatalogType:
    kind = KIND_BY_OID.get(int(oid), "unknown")
    if kind in ARRAY_OIDS:
        element = _catalog_type(Oid(KIND_OIDS[kind.removesuffix("[]")]))
        return CatalogType(oid, "pg_catalog", f"_{element.name}", "b", element=element)
    return CatalogType(oid, "pg_catalog", kind, "e" if kind == "enum" else "b")


def random_text(rng: random.Random) -> str:
    """A text with what breaks decoders in it."""
    alphabet = ["a", "z", " ", "\\", '"', "'", "\n", "\t", "ß", "€", "🜁", "NULL", "tn", "u", ","]
    return "".join(rng.choices(alphabet, k=rng.choice([0, 1, 2, 5, 12, 13, 40])))


def _number(rng: random.Random) -> str:
    whole = rng.choice([0, rng.randrange(100), rng.randrange(10**8)])
    sign = rng.choice(["", "-"]) if whole else ""
    return rng.choice([f"{sign}{whole}.{rng.randrange(100):02}"] * 9 + ["NaN", "Infinity"])


def _day(rng: random.Random) -> str:
    return f"{rng.randrange(1, 10000):04}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}"


def _time(rng: random.Random) -> str:
    fraction = f".{rng.randrange(1, 10**6):06}".rstrip("0") if rng.random() < 0.5 else ""
    return f" {rng.randrange(24):02}:{rng.randrange(60):02}:{rng.randrange(60):02}{fraction}"


def _or_far(rng: random.Random, ordinary: str, zone: str = "") -> str:
    clock = " 12:00:00" if " " in ordinary else ""
    return rng.choice([ordinary] * 9 + ["infinity", f"0044-03-15{clock}{zone} BC", f"12024-01-01{clock}{zone}"])


VALUES: dict[str, Callable[[random.Random], str]] = {
    "bool": lambda rng: rng.choice("tf"),
    "int2": lambda rng: str(rng.randrange(-(2**15), 2**15)),
    "int4": lambda rng: str(rng.randrange(-(2**31), 2**31)),
    "int8": lambda rng: str(rng.randrange(-(2**63), 2**63)),
    "float4": lambda rng: rng.choice(["0", "-0", "1.5", "1e+20", "3.4028235e+38", "1e-45", "NaN", "-Infinity"]),
    "float8": lambda rng: rng.choice([str(rng.randrange(10**6)), "-0", "0.1", "5e-324", "NaN", "Infinity"]),
    "numeric": _number,
    "text": random_text,
    "varchar": random_text,
    "name": random_text,
    "bpchar": lambda rng: random_text(rng).ljust(10),
    "exact_text": lambda rng: '{"a": ' + str(rng.random()) + "}",
    "enum": lambda rng: rng.choice(["new", "paid", "größe"]),
    "uuid": lambda rng: f"{rng.getrandbits(128):032x}",
    "bytea": lambda rng: "\\x" + rng.randbytes(rng.choice([0, 1, 9])).hex(),
    "date": lambda rng: _or_far(rng, _day(rng)),
    "timestamp": lambda rng: _or_far(rng, _day(rng) + _time(rng)),
    "timestamptz": lambda rng: _or_far(rng, _day(rng) + _time(rng) + "+00", "+00"),
}


def array_text(values: Sequence[str | None]) -> str:
    """An array of one dimension as PostgreSQL prints it."""
    return "{" + ",".join("NULL" if value is None else _element(value) for value in values) + "}"


def _element(text: str) -> str:
    if text and text.upper() != "NULL" and not re.search(r'[{}",\\ \t\n\v\f\r]', text):
        return text
    return '"' + re.sub(r'(["\\])', r"\\\1", text) + '"'


def _array_of(draw: Callable[[random.Random], str]) -> Callable[[random.Random], str]:
    def array(rng: random.Random) -> str:
        values = [None if rng.random() < 0.2 else draw(rng) for _ in range(rng.choice([0, 1, 1, 2, 5]))]
        text = array_text(values)
        if values and rng.random() < 0.1:
            return rng.choice([f"[0:{len(values) - 1}]={text}", f"{{{text},{text}}}"])
        return text

    return array


VALUES |= {f"{kind}[]": _array_of(VALUES[kind]) for kind in KIND_OIDS if kind != "exact_text"}


@dataclass(slots=True)
class Workload:
    """A random stream. `tables` are the schemas announced so far; `lsn` grows with each transaction."""

    rng: random.Random
    tables: dict[int, Relation] = field(default_factory=dict)
    lsn: int = 1 << 32

    def transaction(self, changes: int) -> list[Message]:
        """Return a transaction of about so many changes, from its Begin to its Commit."""
        rng = self.rng
        self.lsn += rng.randrange(100, 10_000)
        commit, end = Lsn(self.lsn), Lsn(self.lsn + 48)
        time_us = START_TIME_US + rng.randrange(10**9)
        if rng.random() < 0.1:
            # The time that an upstream gave, whatever it is.
            time_us = of_number(rng.choice([rng.randrange(-(1 << 63), 1 << 63), (1 << 63) - 1, -(1 << 63)]))
        messages: list[Message] = [Begin(commit, time_us, Xid(rng.randrange(3, 2**32)))]
        if rng.random() < 0.1:
            messages.append(Origin(Lsn(rng.randrange(2**40)), "elsewhere"))
        for _ in range(changes):
            messages += self._change()
        return [*messages, Commit(commit, end, time_us)]

    def between(self) -> list[Message]:
        """The messages that may stand between transactions."""
        if self.rng.random() < 0.1:
            return [LogicalMessage(False, Lsn(self.lsn), "beat", self.rng.randbytes(5))]
        return []

    def _change(self) -> list[Message]:
        rng = self.rng
        messages: list[Message] = []
        if not self.tables or rng.random() < 0.04:
            relation = self._schema(16384 + rng.randrange(4))
            self.tables[int(relation.oid)] = relation
            messages += [TypeName(Oid(70000), "public", "mood"), relation]
        relation = rng.choice(list(self.tables.values()))
        if rng.random() < 0.03:
            messages.append(relation)  # again, unchanged: it means nothing
        match rng.choices("iudtm", [5, 5, 3, 0.3, 0.2])[0]:
            case "i":
                messages.append(Insert(relation.oid, self._row(relation)))
            case "u":
                messages.append(self._update(relation))
            case "d":
                messages.append(Delete(relation.oid, *self._old(relation)))
            case "t":
                oids = rng.sample(sorted(self.tables), rng.randint(1, len(self.tables)))
                messages.append(Truncate(tuple(map(Oid, oids)), rng.random() < 0.5, rng.random() < 0.5))
            case _:
                messages.append(LogicalMessage(True, Lsn(self.lsn), "note", rng.randbytes(3)))
        return messages

    def _schema(self, oid: int) -> Relation:
        rng = self.rng
        identity = rng.choice([Identity.DEFAULT, Identity.FULL])
        kinds = rng.choices(list(OIDS), k=rng.choice([0, 1, 3, 8, 20]))
        columns = tuple(
            RelationColumn(
                f"column {ordinal}",
                Oid(OIDS[kind]),
                NUMERIC_TYPMOD if kind.startswith("numeric") else -1,
                identity is Identity.FULL or ordinal == 0,
            )
            for ordinal, kind in enumerate(kinds)
        )
        return Relation(Oid(oid), rng.choice(["public", "pg_catalog", "Ü"]), f"table {oid}", identity, columns)

    def _value(self, column: RelationColumn, *, may_be_unchanged: bool = False) -> Value:
        if self.rng.random() < 0.1:
            return None
        if may_be_unchanged and self.rng.random() < 0.1:
            return UNCHANGED
        return VALUES[KIND_BY_OID[int(column.type_oid)]](self.rng)

    def _row(self, relation: Relation) -> Values:
        return tuple(self._value(column) for column in relation.columns)

    def _old(self, relation: Relation) -> tuple[OldImage, Values]:
        if relation.identity is Identity.FULL:
            return OldImage.ROW, self._row(relation)
        return OldImage.KEY, tuple(self._value(c) if c.identity else None for c in relation.columns)

    def _update(self, relation: Relation) -> Update:
        new = tuple(self._value(column, may_be_unchanged=True) for column in relation.columns)
        if relation.identity is Identity.DEFAULT and self.rng.random() < 0.6:
            return Update(relation.oid, None, None, new)
        image, old = self._old(relation)
        if image is OldImage.ROW:
            new = tuple(None if n is UNCHANGED and o is None else n for o, n in zip(old, new, strict=True))
        return Update(relation.oid, image, old, new)
