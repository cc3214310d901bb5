"""The keys that a repair reads again: which they are, their limit, and the SELECT for them."""

from __future__ import annotations

import pytest

from lakeproof.names import Oid, TableName
from lakeproof.postgres.catalog.tables import ACTIONS, PublishedTable
from lakeproof.postgres.copying.keys import keys_query
from lakeproof.proof.compare import ProofRow
from lakeproof.proof.keys_to_repair import KeysToRepair, keys_to_repair
from lakeproof.schema import Column, Identity, SchemaVersion


def test_keys_that_differ_are_found_whatever_differs() -> None:
    """A row lost, one that nobody has, another value, and a row that is there twice; equal rows are none of it."""
    source = [(0, ProofRow(1, ("a",))), (0, ProofRow(2, ("b",))), (2, ProofRow(3, ("c",))), (2, ProofRow(9, ("e",)))]
    lake = [
        (0, ProofRow(1, ("a",))),
        (0, ProofRow(7, ("b",))),
        (1, ProofRow(5, ("d",))),
        (2, ProofRow(9, ("e",))),
        (2, ProofRow(9, ("e",))),
    ]
    assert keys_to_repair(source, lake) == KeysToRepair([("b",), ("c",), ("d",), ("e",)])
    assert keys_to_repair(source, source) == KeysToRepair([])


def test_more_keys_than_the_limit_or_a_key_with_null_call_for_the_whole_table() -> None:
    """The reason says which."""
    many = [(0, ProofRow(i, (str(i),))) for i in range(4)]
    assert len(keys_to_repair(many, [], keys_max=4).keys) == 4
    assert keys_to_repair(many, [], keys_max=3).why_whole == "more than 3 keys differ"
    assert keys_to_repair([(0, ProofRow(1, ("a", None)))], []).why_whole == "a key that differs has NULL in it"


INT4, TEXT = '"pg_catalog"."int4"', '"pg_catalog"."text"'
ONE = f"\"a\" = ANY (ARRAY['1', '2']::{INT4}[])"
FIRST, SECOND = f"('it''s'::{TEXT}, '1'::{INT4})", rf"( E'\\x'::{TEXT}, '2'::{INT4})"
TWO = f'("b", "a") IN (VALUES {FIRST}, {SECOND})'


@pytest.mark.parametrize(
    ("key", "keys", "condition"),
    [(("a",), [("1",), ("2",)], ONE), (("b", "a"), [("it's", "1"), ("\\x", "2")], TWO)],
)
def test_the_select_has_the_filter_and_every_key(
    key: tuple[str, ...], keys: list[tuple[str, ...]], condition: str
) -> None:
    """Texts are quoted, and cast to the type that the column has in every server."""
    columns = (
        Column("a", Oid(23), -1, "int4", "int4", 1, identity=True),
        Column("b", Oid(25), -1, "text", "text", 2, identity=True),
    )
    version = SchemaVersion(TableName("app", "t"), Oid(7), Identity.DEFAULT, columns, key)
    table = PublishedTable(version, "(a > 3)", frozenset(ACTIONS), (), partitioned=False, publications=("p",))
    chosen, _, where = keys_query(table, keys).as_string(None).partition(" WHERE ")
    assert (chosen, where) == ('SELECT "a", "b" FROM ONLY "app"."t"', f"((a > 3)) AND {condition}")
