"""The features that readers must know are read from a log alone: its checksum, its commits or a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.lake.delta.log.commits import LogGapError, commit_name
from lakeproof.lake.delta.log.protocol import NOT_PORTABLE, protocol_for, reader_features

PLAIN = {"minReaderVersion": 1, "minWriterVersion": 2}


def listing(*features: str) -> dict[str, Any]:
    """A protocol that lists features."""
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(features)}


def column(name: str, kind: str = "integer", **more: Any) -> dict[str, Any]:
    """A column of a schema's text; `physical` and `was` are Delta's notes on it."""
    metadata = {"delta.columnMapping.physicalName": more["physical"]} if "physical" in more else {}
    changes = {"delta.typeChanges": [{"fromType": more["was"], "toType": kind}]} if "was" in more else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": {**metadata, **changes}}


def metadata(*columns: dict[str, Any], vectors: str = "false") -> dict[str, Any]:
    """A `metaData` action."""
    return {
        "id": "x",
        "schemaString": json.dumps({"type": "struct", "fields": list(columns)}),
        "configuration": {"delta.enableDeletionVectors": vectors},
    }


def commit(path: Path, version: int, *actions: dict[str, Any], txn_id: str = "t") -> None:
    """Write a commit."""
    file = path / commit_name(version)
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join(json.dumps(a) for a in ({"commitInfo": {"txnId": txn_id}}, *actions)))


def test_each_feature_has_its_reason(tmp_path: Path) -> None:
    """The columns that need it are named; an unknown one is named all the same."""
    features = listing("typeWidening", "columnMapping", "timestampNtz", "deletionVectors", "other")
    columns = (
        column("id"),
        column("b", physical="a"),
        column("_lp_dropped_7_3", physical="c"),
        column("_lp_dropped_8_4", physical="col-3"),
        column("_lp_dropped_9_5", physical="col-4"),
        column("x y", physical="col-1"),
        column("c", physical="col-2"),
        column("n", "long", was="integer", physical="n"),
        column("t", "timestamp_ntz", physical="t"),
    )
    commit(tmp_path, 0, {"protocol": features}, {"metaData": metadata(*columns, vectors="true")})
    actual = reader_features(str(tmp_path), 0)
    assert actual == {
        "columnMapping": "b was a; c was dropped; a file can't have the name x y; 2 later columns were dropped",
        "deletionVectors": "deleted rows are marked, and stay in their files",
        "other": "since an earlier change",
        "timestampNtz": "t is a timestamp without a time zone",
        "typeWidening": "n was integer",
    }
    assert not NOT_PORTABLE.isdisjoint(actual)


@pytest.mark.parametrize(
    ("protocol", "expected", "portable"),
    [
        (PLAIN, set(), True),
        ({"minReaderVersion": 2, "minWriterVersion": 5}, {"columnMapping"}, False),
        (listing("timestampNtz"), {"timestampNtz"}, True),
        (listing("deletionVectors"), {"deletionVectors"}, False),
    ],
)
def test_older_protocols_are_understood(
    tmp_path: Path, protocol: dict[str, Any], expected: set[str], portable: bool
) -> None:
    """A type's feature is no matter of how a table is written."""
    commit(tmp_path, 0, {"protocol": protocol}, {"metaData": metadata(column("id"))})
    actual = reader_features(str(tmp_path), 0)
    assert (set(actual), NOT_PORTABLE.isdisjoint(actual)) == (expected, portable)


def test_the_newest_before_a_version_counts(tmp_path: Path) -> None:
    """Later commits change a part, rows change nothing, and what a version had stays its own."""
    commit(tmp_path, 0, {"protocol": PLAIN}, {"metaData": metadata(column("id"))})
    commit(tmp_path, 1, {"add": {"path": "x"}})
    commit(
        tmp_path, 2, {"protocol": listing("typeWidening")}, {"metaData": metadata(column("id", "long", was="integer"))}
    )
    commit(tmp_path, 3, {"add": {"path": "y"}})
    before, after = reader_features(str(tmp_path), 1), reader_features(str(tmp_path), 3)
    assert (before, after) == ({}, {"typeWidening": "id was integer"})


def test_a_checkpoint_is_enough(tmp_path: Path) -> None:
    """Retention has removed the commits before it."""
    commit(tmp_path, 7, {"add": {"path": "x"}})
    whole = {"protocol": listing("columnMapping"), "metaData": metadata(column("b", physical="a"))}
    rows = [{"protocol": whole["protocol"], "metaData": None}, {"protocol": None, "metaData": whole["metaData"]}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "_delta_log" / f"{6:020d}.checkpoint.parquet")
    assert reader_features(str(tmp_path), 7) == {"columnMapping": "b was a"}


def test_a_checksum_counts_for_its_own_commit_alone(tmp_path: Path) -> None:
    """One that was left of an earlier commit of this number is passed over; a damaged one too."""
    commit(tmp_path, 0, {"protocol": PLAIN}, {"metaData": metadata(column("id"))})
    commit(tmp_path, 1, {"add": {"path": "x"}}, txn_id="mine")
    checksum = tmp_path / "_delta_log" / f"{1:020d}.crc"
    state = {"protocol": listing("deletionVectors"), "metadata": metadata(column("id"), vectors="true")}
    for txn_id, expected in (("mine", {"deletionVectors"}), ("another", set())):
        checksum.write_text(json.dumps({"txnId": txn_id, **state}))
        assert set(reader_features(str(tmp_path), 1)) == expected
    checksum.write_text("{")
    assert reader_features(str(tmp_path), 1) == {}


def test_a_log_that_says_nothing_is_an_error(tmp_path: Path) -> None:
    """A version that is missing, and a log without a schema."""
    commit(tmp_path, 1, {"add": {"path": "x"}})
    with pytest.raises(LogGapError, match="version 0 is missing"):
        reader_features(str(tmp_path), 1)
    commit(tmp_path, 0, {"add": {"path": "x"}})
    with pytest.raises(LogGapError, match="does not say"):
        reader_features(str(tmp_path), 1)


def test_a_protocol_that_has_all_stays_as_it_is() -> None:
    """One that lists its features, and of an older one each feature that its version implies is listed then."""
    listed = listing("deletionVectors") | {"writerFeatures": ["deletionVectors"]}
    assert protocol_for(metadata(column("id"), vectors="true"), listed) == listed
    for version, implied in (
        (3, {"checkConstraints"}),
        (4, {"checkConstraints", "changeDataFeed", "generatedColumns"}),
    ):
        older = {"minReaderVersion": 1, "minWriterVersion": version}
        assert protocol_for(metadata(column("id")), older) == older
        features = protocol_for(metadata(column("id"), vectors="true"), older)["writerFeatures"]
        assert {"appendOnly", "invariants", "deletionVectors"} | implied == set(features)
