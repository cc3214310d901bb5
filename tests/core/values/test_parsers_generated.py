"""Every parser under what hypothesis makes and shrinks: what was written comes back, the rest is one error of ours.

Cases that a person chose are in the parsers' own tests; the decoder of the stream has generators of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lakeproof.config.load import load
from lakeproof.config.table_names import parse_selected, parse_table, table_text
from lakeproof.errors import LakeError, LakeproofError
from lakeproof.failpoints import Armed
from lakeproof.lake.delta.log.commits import LogGapError, actions_of
from lakeproof.lake.records.cuts.documents import BaseDoc, CutDoc, TableSchemaDoc
from lakeproof.lake.records.cuts.groups import GroupCut
from lakeproof.lake.records.documents import Intent
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.lake.records.views.definitions import ViewDefinition, ViewPreview
from lakeproof.landing.chain_start import ChainStart
from lakeproof.landing.incarnation_record import IncarnationRecord
from lakeproof.landing.segments.manifest import parse as parse_manifest
from lakeproof.landing.stuck import Stuck
from lakeproof.landing.timelines import TimelineDoc
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, TableName
from lakeproof.proof.record import ProofRecord
from lakeproof.snapshot.copy.keyed_copy import KeyedCopy
from lakeproof.snapshot.folder import SnapshotEnd, SnapshotRequest
from lakeproof.snapshot.incarnation import SourceDoc
from lakeproof.snapshot.state import SnapshotDoc
from lakeproof.values.cast import CastError
from tests.core.lake.lake_document_samples import DOCUMENTS
from tests.core.landing.landing_document_samples import LANDING_DOCUMENTS
from tests.core.values.casting import cast
from tests.support.workloads.examples import examples

# PostgreSQL's names have no NUL, UTF-8 has no lone surrogate.
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=40)
TABLES = st.builds(TableName, NAMES, NAMES)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
READERS: dict[str, Callable[[bytes, str], object]] = {
    "manifest_head": parse_manifest,
    "manifest_segment": parse_manifest,
    "manifest_catalog": parse_manifest,
    "chain_start": ChainStart.from_bytes,
    "incarnation_record": IncarnationRecord.from_bytes,
    "timeline": TimelineDoc.from_bytes,
    "stuck": Stuck.from_bytes,
    "cutbase": BaseDoc.from_bytes,
    "schema": TableSchemaDoc.from_bytes,
    "proved": ProofRecord.from_bytes,
    "source": SourceDoc.from_bytes,
    "snapshot": SnapshotDoc.from_bytes,
    "snapshotend": SnapshotEnd.from_bytes,
    "keyedcopy": KeyedCopy.from_bytes,
    "snapshotrequest": SnapshotRequest.from_bytes,
    "intent": Intent.from_bytes,
    "cut": CutDoc.from_bytes,
    "viewcut": ViewCut.from_bytes,
    "viewdefinition": ViewDefinition.from_bytes,
    "viewpreview": ViewPreview.from_bytes,
    "groupcut": GroupCut.from_bytes,
}
KINDS = ["bool", "int2", "int4", "int8", "float4", "float8", "numeric", "bytea", "date", "timestamp", "timestamptz"]
# Each example of the slow ones opens a file.
FEW = settings(max_examples=examples(10), deadline=None)
MANY = settings(max_examples=examples(25), deadline=None)


@given(TABLES)
@MANY
def test_a_table_s_name_comes_back_from_its_key_and_from_what_a_person_types(table: TableName) -> None:
    """A name survives as a folder of the lake, and as an argument."""
    assert TableName.from_key(table.key) == table
    assert table.key.count("/") == 1
    assert parse_table(table_text(table)) == table
    assert parse_selected(table_text(table)) == table


@given(st.text())
@MANY
def test_any_text_is_a_name_or_one_error(text: str) -> None:
    """Covers tables, positions and failpoints."""
    for parse in (parse_table, parse_selected, Lsn.parse, Armed.parse):
        with suppress(LakeproofError, ValueError):
            parse(text)


@given(st.integers(0, (1 << 64) - 1))
@MANY
def test_a_position_comes_back(value: int) -> None:
    """A position is parsed from PostgreSQL's form of it."""
    assert Lsn.parse(str(Lsn(value))) == Lsn(value)


@given(st.dictionaries(TEXTS, JSON, max_size=5))
@MANY
def test_a_document_comes_back_from_its_bytes(document: dict[str, Any]) -> None:
    """Covers documents with any values."""
    base = BaseDoc(CycleNumber(1), {TableName("public", "t"): document}, {})
    assert BaseDoc.from_bytes(base.to_bytes(), "place") == base


@given(st.binary())
@MANY
def test_any_bytes_are_a_document_or_refused(data: bytes) -> None:
    """By an error of ours, and none of Python's or pydantic's."""
    with suppress(LakeError):
        BaseDoc.from_bytes(data, "place")


def _replaced(draw: st.DrawFn, value: Any) -> Any:
    """The value with one thing in it that is another."""
    inner = list(value) if isinstance(value, dict) else list(range(len(value))) if isinstance(value, list) else []
    if not inner or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    position = draw(st.sampled_from(inner))
    result = value.copy()
    if isinstance(result, dict) and draw(st.integers(0, 4)) == 0:
        del result[position]
    else:
        result[position] = _replaced(draw, value[position])
    return result


@st.composite
def damaged(draw: st.DrawFn) -> tuple[str, bytes]:
    """A lake's document with something in it replaced or left out."""
    name = draw(st.sampled_from(sorted(READERS)))
    document = _replaced(draw, json.loads((DOCUMENTS | LANDING_DOCUMENTS)[name]))
    return name, json.dumps(document).encode()


@given(damaged())
@MANY
def test_a_document_with_something_else_in_it_is_read_or_refused(result: tuple[str, bytes]) -> None:
    """A refusal names the document as damaged."""
    name, data = result
    with suppress(LakeError):
        READERS[name](data, "place")


@given(
    st.lists(st.dictionaries(st.sampled_from(["add", "remove", "txn", "x"]), st.dictionaries(TEXTS, JSON)), min_size=1)
)
@example([{"add": {"\u2028 \u2029 \x85 \x1c": {"\u2028": ["\x0c"]}}, "x": {}}, {}])
@FEW
def test_each_action_of_a_commit_is_read_with_any_texts(lines: list[dict[str, dict[str, Any]]]) -> None:
    """U+2028 and its like end no line, with JSON's escapes or raw."""
    expected = [item for line in lines for item in line.items()]
    for ascii_only in (True, False):
        text = "\n".join(json.dumps(line, ensure_ascii=ascii_only) for line in lines).encode()
        if expected:
            assert actions_of(text, "t", "0.json") == expected
        else:
            with suppress(LogGapError):
                actions_of(text, "t", "0.json")


@given(st.dictionaries(st.sampled_from(["lake", "sources", "views", "spark", "proof_rows"]) | TEXTS, JSON) | JSON)
@FEW
def test_any_yaml_is_a_configuration_or_refused(document: Any) -> None:
    """A refusal has the file's name."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "w.yaml"
        file.write_text(yaml.safe_dump(document, allow_unicode=True), encoding="utf-8")
        with suppress(LakeproofError):
            load(file)


@given(st.binary(max_size=200))
@FEW
def test_any_bytes_are_a_configuration_or_refused(data: bytes) -> None:
    """Bytes that are not text are refused."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "w.yaml"
        file.write_bytes(data)
        with suppress(LakeproofError):
            load(file)


@given(st.integers(-(1 << 63), (1 << 63) - 1), st.integers(-(10**28), 10**28), st.floats())
@MANY
def test_numbers_come_back(whole: int, scaled: int, real: float) -> None:
    """Integers, decimals at their scale, floats by their shortest text."""
    assert cast("int8", str(whole)).values.to_pylist() == [whole]
    decimal = Decimal(scaled).scaleb(-10)
    typmod = ((38 << 16) | 10) + 4
    assert cast("numeric", f"{decimal:.10f}", typmod=typmod).values.to_pylist() == [decimal]
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(repr(real), repr(real))
    (actual,) = cast("float8", text).values.to_pylist()
    assert actual == real or (actual != actual and real != real)  # noqa: PLR0124  NaN alone is not itself


@given(st.sampled_from(KINDS), TEXTS)
@MANY
def test_any_text_is_a_value_or_none_of_its_type(kind: str, text: str) -> None:
    """A value, a text beside the column, or one error."""
    with suppress(CastError):
        cast(kind, text)
