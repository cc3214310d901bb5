"""Checkpoints that others have written; our own are in `test_unnamed_commits.py`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lakeproof.lake.delta.log.checkpoint import read_checkpoint
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
