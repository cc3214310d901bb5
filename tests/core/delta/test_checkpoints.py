"""Checkpoints that others have written, and our checksum files; our own checkpoints are in `test_unnamed_commits.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.lake.delta.committer import AddedFile, CommitInfo, LoggedOperation, PendingCommit
from lakeproof.lake.delta.log.checkpoint import read_checkpoint
from lakeproof.lake.delta.log.commits import checksum_name
from lakeproof.lake.delta.log.protocol import metadata_of
from lakeproof.storage.folder import Folder


def test_a_checkpoint_of_another_writer_is_read_by_its_types(tmp_path: Path) -> None:
    """A map of any name is an object, with its NULLs; a struct has no NULLs, and what was parsed for readers is left out."""
    texts, vector = pa.map_(pa.string(), pa.string()), pa.struct({"offset": pa.int32(), "sizeInBytes": pa.int32()})
    add = pa.struct(
        {"path": pa.string(), "partitionValues": texts, "notes": texts, "v_parsed": texts, "vector": vector}
    )
    domain = pa.struct({"domain": pa.string(), "configuration": pa.string()})
    maps = {"partitionValues": [("day", None)], "notes": [("by", "me"), ("on", None)], "v_parsed": [("day", "1")]}
    rows = [
        {"add": {"path": "a", **maps, "vector": {"offset": 1}}},
        {"domainMetadata": {"domain": "d", "configuration": "{}"}},
    ]
    (tmp_path / "_delta_log").mkdir()
    schema = pa.schema({"add": add, "domainMetadata": domain})
    pq.write_table(pa.Table.from_pylist(rows, schema), tmp_path / "_delta_log" / "checkpoint.parquet")
    assert [*read_checkpoint(Folder.at(str(tmp_path)), "checkpoint.parquet")] == [
        (
            "add",
            {
                "path": "a",
                "partitionValues": {"day": None},
                "notes": {"by": "me", "on": None},
                "vector": {"offset": 1},
            },
        ),
        ("domainMetadata", {"domain": "d", "configuration": "{}"}),
    ]


def test_the_checksum_file_says_what_the_version_has(tmp_path: Path) -> None:
    """Readers of Delta check what they have read of the log against it."""
    entry = {"path": "1.parquet", "size": 7, "partitionValues": {}, "stats": '{"numRecords":1}'}
    change = PendingCommit(str(tmp_path), None)
    change.set_metadata(metadata_of([{"name": "v", "type": "string", "nullable": True, "metadata": {}}], {}))
    change.add([AddedFile(entry), AddedFile(entry | {"path": "2.parquet"})])
    state = change.commit(CommitInfo("ours", 5, "{}"), LoggedOperation("WRITE", {}, {}))
    checksum = json.loads((tmp_path / checksum_name(0)).read_text(encoding="utf-8"))
    assert (checksum["tableSizeBytes"], checksum["numFiles"]) == (14, 2)
    assert (checksum["numMetadata"], checksum["metadata"]) == (1, state.metadata)
    assert (checksum["numProtocol"], checksum["protocol"]) == (1, state.protocol)
    assert [(txn["appId"], txn["version"]) for txn in checksum["setTransactions"]] == [("ours", 5)]
