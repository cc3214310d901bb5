"""Documents that nobody of ours wrote: one clear refusal each, whatever bytes they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.storage.fields import Malformed, canonical, parse_object


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": -' + b"9" * 5000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}',
        b'{"a": [["x\\uD800\\u0041"]]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_document_is_malformed(data: bytes) -> None:
    """The error is ours, not one of Python's."""
    with pytest.raises(Malformed):
        parse_object(data)


def test_a_character_that_is_escaped_in_two_halves_is_a_character() -> None:
    """JSON writes characters beyond the first 65,536 as surrogate pairs."""
    document = parse_object(b'{"a": "\\ud83d\\ude00"}')
    assert document == {"a": "\U0001f600"}
    assert parse_object(canonical(document)) == document


def test_an_archive_is_relative_to_the_configuration(tmp_path: Path) -> None:
    """The working directory of the process that removes history does not matter."""
    file = tmp_path / "w.yaml"
    text = "lake: l\nsources: {{s: {{dsn: dbname=a, retention: {{archive: {archive}}}}}}}\n"
    file.write_text(text.format(archive="./old"), encoding="utf-8")
    assert load(file).sources["s"].retention.archive == str(tmp_path / "old")
    for refused in ("~/old", "s3://bucket/old"):
        file.write_text(text.format(archive=refused), encoding="utf-8")
        with pytest.raises(ConfigFileError, match=r"sources\.s\.retention\.archive"):
            load(file)
