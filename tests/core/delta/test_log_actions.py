"""A Delta log in which one letter is another: the table is named, and nobody fails at what is not there."""

from __future__ import annotations

from typing import Any

import pytest

from lakeproof.lake.delta.log.commits import are_whole

_SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"integer","nullable":true,"metadata":{}}]}'
_VECTOR = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 1, "sizeInBytes": 34, "cardinality": 2}
_WHOLE: dict[str, dict[str, Any]] = {
    "add": {"path": "a", "size": 7, "deletionVector": _VECTOR},
    "remove": {"path": "a"},
    "txn": {"appId": "x", "version": 1},
    "domainMetadata": {"domain": "d", "configuration": "{}", "removed": False},
    "metaData": {"id": "1", "schemaString": _SCHEMA, "partitionColumns": []},
    "protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]},
    "commitInfo": {"operation": "WRITE"},
    "unknown": {},
}


def test_what_is_whole_is_read() -> None:
    """An action that this version knows nothing of is none of its affairs."""
    assert are_whole(_WHOLE.items())


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("add", {"path": None}),
        ("add", {"path": 7}),
        ("add", {"size": "7"}),
        ("add", {"deletionVector": 7}),
        *(
            ("add", {"deletionVector": {k: v for k, v in _VECTOR.items() if k != name}})
            for name in _VECTOR
            if name != "offset"
        ),
        ("remove", {"path": []}),
        ("txn", {"appId": None}),
        ("txn", {"version": "1"}),
        ("domainMetadata", {"domain": None}),
        ("metaData", {"id": None}),
        ("metaData", {"schemaString": None}),
        ("metaData", {"schemaString": "{"}),
        ("metaData", {"schemaString": "7"}),
        ("metaData", {"schemaString": '{"fields":[7]}'}),
        ("metaData", {"schemaString": '{"fields":[{}]}'}),
        ("metaData", {"partitionColumns": [7]}),
        ("protocol", {"minReaderVersion": None}),
        ("protocol", {"readerFeatures": [True]}),
        ("protocol", {"readerFeatures": 7}),
    ],
)
def test_what_is_not_whole_is_damage(kind: str, change: dict[str, Any]) -> None:
    """Whatever is missing, or of another type."""
    assert not are_whole({kind: _WHOLE[kind] | change}.items())
