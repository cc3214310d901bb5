"""Every type that a column can have, with values of each: those of pg_catalog, of contrib's extensions, and our own.

Scalars' extremes are in `exact_values.py`; which types there are is asked of the server, so that none is forgotten.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from psycopg import sql

from lakeproof.postgres.connections.connect import Connection
from tests.edges.values.exact_values import EXTREMES, Text, array_text

EXTENSIONS = (
    "citext", "hstore", "ltree", "cube", "seg", "isn", "lo", "intarray", "earthdistance", "pg_trgm", "tablefunc", "vector",
)  # fmt: skip
# Ours: one of each sort of type, and of types below types.
DEFINITIONS = """
CREATE TYPE mood AS ENUM ('sad', 'ok', 'so "happy"', 'Ü{,}', '', 'NULL');
CREATE TYPE pair AS (a int, b text);
CREATE TYPE deep AS (a pair[], b float8, c mood);
CREATE TYPE span AS RANGE (subtype = float8, multirange_type_name = spans);
CREATE DOMAIN whole AS int CHECK (VALUE > -100);
CREATE DOMAIN wholer AS whole DEFAULT 7;
CREATE DOMAIN price AS numeric(10, 3);
CREATE DOMAIN label AS char(4);
CREATE DOMAIN temper AS mood;
CREATE DOMAIN numbers AS int[];
CREATE DOMAIN prices AS numeric(8, 2)[];
CREATE DOMAIN both_ AS pair;
CREATE DOMAIN reach AS span;
CREATE DOMAIN instant AS timestamptz(3);
"""

VALUES: dict[str, tuple[Text, ...]] = {
    **{name: EXTREMES[name] for name in (
        "bool", "int2", "int4", "int8", "float4", "float8", "numeric", "text", "bpchar", "name", "uuid", "bytea", "date",
        "timestamp", "timestamptz", "json", "jsonb", "time", "timetz", "interval", "inet", "cidr", "macaddr", "int4range",
        "tstzrange", "int4multirange", "varbit", "tsvector", "point", "money", "oid", "regclass", "pg_lsn", "int2vector",
        "oidvector",
    )},
    "varchar": EXTREMES["text"],
    "char": EXTREMES['"char"'],
    "bit": ("1", "0101", ""),
    "regproc": ("now", "-"),
    "regprocedure": ("now()", "-"),
    "regoper": ("||/", "0"),
    "regoperator": ("+(integer,integer)",),
    "regtype": ("integer", "timestamp with time zone[]", "-"),
    "regconfig": ("english",),
    "regdictionary": ("simple",),
    "regnamespace": ("pg_catalog",),
    "regrole": ("pg_monitor", "-"),
    "regcollation": ('"C"',),
    "tid": ("(0,1)", "(4294967295,65535)"),
    "xid": ("0", "4294967295"),
    "cid": ("4294967295",),
    "xid8": ("18446744073709551615",),
    "macaddr8": ("08:00:2b:01:02:03:04:05",),
    "aclitem": ("pg_monitor=r*w/pg_monitor", "=r/pg_monitor"),
    "refcursor": ("", "a cursor"),
    "txid_snapshot": ("10:20:10,14,15",),
    "pg_snapshot": ("10:20:10,14,15",),
    "tsquery": ("'a' & !'b c':*A | 'd' <-> 'e'", ""),
    "jsonpath": ('$.a[*] ? (@ > 1.50 && @.b == "é\\"")',),
    "lseg": ("[(0.1,-0),(NaN,Infinity)]",),
    "path": ("((0,0),(1,1e-300))", "[(0,0),(1,-Infinity)]"),
    "box": ("(1,1),(0,-0)",),
    "polygon": ("((0,0),(1,1),(1e300,5e-324))",),
    "line": ("{1,-1,0.30000000000000004}",),
    "circle": ("<(0,-0),5e-324>",),
    "numrange": ("[1.50,NaN)", "empty", "(-Infinity,0.000]"),
    "tsrange": ('["0044-03-15 12:00:00 BC",infinity]', "(,)"),
    "daterange": ("[0044-03-15 BC,infinity)", "[2024-01-01,2024-01-01]"),
    "int8range": ("[-9223372036854775808,9223372036854775806]",),
    "nummultirange": ("{[1.50,2),(3,)}", "{}"),
    "tsmultirange": ("{[2024-01-01 00:00:00.1,2024-01-02)}",),
    "tstzmultirange": ("{[2024-01-01 00:00:00+05:30,infinity)}",),
    "datemultirange": ("{[0044-03-15 BC,2024-01-01)}",),
    "int8multirange": ("{[1,3),[5,9)}",),
    "citext": ("", "Straße", "NULL", "a,b"),
    "hstore": ('"a"=>NULL, "b ü"=>"x,y\\"", ""=>"NULL"', ""),
    "ltree": ("a.b_c.D", ""),
    "lquery": ("a.*{1,2}.!b|c@*",),
    "ltxtquery": ("a & !b@*",),
    "cube": ("(1,2),(3,5e-324)", "(-0)", "(NaN)"),
    "earth": ("(6378168,0,0)",),
    "seg": ("1.50 .. 2.0", "~5", "< 3", "1e-5 .."),
    "ean13": ("9780393040029",),
    "isbn13": ("9780393040029",),
    "ismn13": ("9790060115615",),
    "issn13": ("9771436452008",),
    "isbn": ("0-393-04002-X",),
    "ismn": ("9790060115615",),
    "issn": ("1436-4522",),
    "upc": ("220356483481",),
    "lo": ("4294967295",),
    "query_int": ("1&(2|!3)",),
    "vector": ("[1,2.5,-0]",),
    "halfvec": ("[1,65504,6e-8]",),
    "sparsevec": ("{1:1.5,3:-2}/5",),
    "mood": ("sad", 'so "happy"', "Ü{,}", "", "NULL"),
    "pair": ("(,)", '(1,"a,b")', '(2,"")', '(-1,"quo""te\\\\")'),
    "deep": ('("{""(1,a)"",""(,)"",NULL}",-0,ok)', "({},NaN,)"),
    "span": ("[0.1,0.30000000000000004)", "empty", "(-Infinity,NaN]"),
    "spans": ("{[0.1,0.2),[5e-324,0.05)}", "{}"),
    "whole": ("0", "2147483647"),
    "wholer": ("0",),
    "price": EXTREMES["price"],
    "label": ("", "ab", "é  "),
    "temper": ("ok", "NULL"),
    "numbers": ("{1,NULL}", "{{1},{2}}", "{}", "[0:0]={1}"),
    "prices": ("{1,NULL,1.5}", "{NaN}"),
    "both_": ('(1,"x")',),
    "reach": ("[0.1,)",),
    "instant": ("2024-01-01 00:00:00.1234567+05:30", "infinity"),
}  # fmt: skip
# Types whose values only the server makes: a query for one of each. `exact.kept` is a table with statistics.
FROM_CATALOG = {
    "pg_node_tree": "SELECT ev_action FROM pg_rewrite ORDER BY oid LIMIT 1",
    "pg_ndistinct": "SELECT stxdndistinct FROM pg_statistic_ext_data WHERE stxdndistinct IS NOT NULL LIMIT 1",
    "pg_dependencies": "SELECT stxddependencies FROM pg_statistic_ext_data WHERE stxddependencies IS NOT NULL LIMIT 1",
    "pg_mcv_list": "SELECT stxdmcv FROM pg_statistic_ext_data WHERE stxdmcv IS NOT NULL LIMIT 1",
}
STATISTICS = """
CREATE TABLE kept (id int PRIMARY KEY, a int, b int);
INSERT INTO kept SELECT i, i % 3, i % 6 FROM generate_series(1, 600) i;
CREATE STATISTICS kept_statistics (ndistinct, dependencies, mcv) ON a, b FROM kept;
ANALYZE kept;
"""
# No input function takes a text, and nothing prints a value that is kept in a column; xml needs a server with libxml.
NO_VALUES = frozenset(
    {
        "gtsvector", "pg_brin_bloom_summary", "pg_brin_minmax_multi_summary", "ghstore", "gtrgm", "ltree_gist",
        "intbig_gkey", "xml",
    }
)  # fmt: skip

_TYPES = """
WITH RECURSIVE pseudo AS (
  SELECT oid FROM pg_type WHERE typtype = 'p'
  UNION
  SELECT t.oid FROM pseudo p JOIN pg_type t ON t.typelem = p.oid OR EXISTS (
    SELECT FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND a.atttypid = p.oid)
)
SELECT t.typname::text, format_type(t.oid, -1), t.typtype::text, COALESCE(e.typname::text, ''),
       COALESCE(e.typdelim::text, ','),
       (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)::int,
       (SELECT count(*) FROM pg_attribute a WHERE a.attrelid = e.typrelid AND a.attnum > 0 AND NOT a.attisdropped)::int,
       t.oid IN (SELECT oid FROM pseudo)
FROM pg_type t
LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid
WHERE t.typtype <> 'p' AND t.typnamespace = {namespace}::regnamespace
  AND t.oid NOT IN (SELECT c.reltype FROM pg_class c WHERE c.relnamespace = 'exact'::regnamespace AND c.relkind = 'r')
  AND t.typelem NOT IN (SELECT c.reltype FROM pg_class c WHERE c.relnamespace = 'exact'::regnamespace AND c.relkind = 'r')
ORDER BY t.typcategory, t.oid
"""


@dataclass(frozen=True)
class ColumnType:
    """A type's name, how a column is declared with it, and texts that it reads; None among them for NULL.

    `impossible`: no column can have it, since it is made of pseudo-types.
    """

    name: str
    declared: str
    values: tuple[Text, ...]
    impossible: bool


class ForgottenTypeError(AssertionError):
    """The server has a type that no value here is of."""


def column_types(conn: Connection, namespace: str) -> list[ColumnType]:
    """Every type of a schema that is no pseudo-type, by category; raises ForgottenTypeError for one without values."""
    actual = []
    forgotten = []
    rows = conn.execute(sql.SQL(_TYPES).format(namespace=sql.Literal(namespace))).fetchall()
    for name, declared, letter, element, delimiter, attributes, element_attributes, impossible in rows:
        values: tuple[Text, ...] | None
        if impossible:
            values = ()
        elif letter == "c" and name not in VALUES:
            values = (_empty_row(attributes),)
        elif element:
            values = _arrays(_values(element, element_attributes), delimiter)
        else:
            values = _values(name, 0)
        if values is None:
            forgotten.append(name)
        else:
            actual.append(ColumnType(name, declared, values, impossible))
    if forgotten:
        raise ForgottenTypeError(f"no values of {', '.join(forgotten)}")
    return actual


def _values(name: str, attributes: int) -> tuple[Text, ...] | None:
    if name in NO_VALUES or name in FROM_CATALOG:
        return ()
    return VALUES.get(name, (_empty_row(attributes),) if attributes else None)


def _empty_row(attributes: int) -> str:
    return "(" + "," * (attributes - 1) + ")"


def _arrays(values: tuple[Text, ...] | None, delimiter: str) -> tuple[Text, ...] | None:
    """Empty, one NULL, all values in one, and the forms that no list has."""
    if values is None:
        return None
    few: list[Text] = [v for v in values if v is None or len(v) < 1000]
    if not few:
        return ("{}", "{NULL}")
    one = array_text(few[:1], delimiter)
    return ("{}", "{NULL}", array_text([*few, None], delimiter), f"{{{one}{delimiter}{one}}}", f"[-1:-1]={one}")


def large_values(seed: int) -> dict[str, str]:
    """A value of 1 MB as text, or as much as the type takes, for each type that can be so large."""
    rnd = random.Random(seed)
    number = "".join(rnd.choices("123456789", k=131000))
    words = [f"w{i}" for i in range(60_000)]
    numbers = [str(rnd.randrange(-(2**31), 2**31)) for _ in range(100_000)]
    text = "".join(rnd.choices('ab "\\\n,{}é日🜁', k=500_000))
    return {
        "text": text,
        "varchar": text[::-1],
        "bytea": "\\x" + rnd.randbytes(500_000).hex(),
        "json": '{"a": "' + "é" * 500_000 + '"}',
        "jsonb": "[" + ", ".join(numbers) + "]",
        "numeric": f"{number}.{number[:16000]}",
        "varbit": "".join(rnd.choices("01", k=1_000_000)),
        "tsvector": " ".join(f"'{w}':{i % 16000 + 1}" for i, w in enumerate(words)),
        "path": "[" + ",".join(f"({x},0.1)" for x in numbers) + "]",
        "int4multirange": "{" + ",".join(f"[{3 * i},{3 * i + 1})" for i in range(60_000)) + "}",
        "pair": '(1,"' + "x" * 1_000_000 + '")',
        "int4[]": array_text(numbers),
        "text[]": array_text([text[i : i + 50] for i in range(0, len(text), 50)]),
        "mood[]": array_text(rnd.choices(("sad", "ok", "NULL", 'so "happy"'), k=150_000)),
        "bytea[]": array_text(["\\x" + rnd.randbytes(25).hex() for _ in range(20_000)]),
        "float8[]": array_text([repr(rnd.random()) for _ in range(50_000)]),
        "timestamptz[]": array_text(["infinity", *["2024-02-29 12:34:56.7+02"] * 40_000]),
        "citext": text[:300_000],
        "hstore": ", ".join(f'"{w}"=>"{w}é"' for w in words),
        "ltree": ".".join(words[:20_000]),
        "vector": "[" + ",".join(["0.1"] * 16000) + "]",
    }
