"""Documents that nobody of ours wrote: one clear refusal each, whatever bytes they have."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.errors import LakeError
from lakeproof.snapshot.incarnation import SourceDoc
from tests.core.lake.lake_document_samples import DOCUMENTS

SOURCE = DOCUMENTS["source"]


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
        b"null",
        b"\xef\xbb\xbf{}",
        SOURCE + b"x",
        SOURCE.replace(b'"app"', b'"app'),
        SOURCE.replace(b'"app"', b'"\\ud800"'),
        SOURCE.replace(b'"app"', b"null"),
        SOURCE.replace(b"16384", b"9" * 5000),
        SOURCE.replace(b"16384", b"9223372036854775808"),
        SOURCE.replace(b"16384", b"-1"),
        SOURCE.replace(b"16384", b"16384.0"),
        SOURCE.replace(b"16384", b'"16384"'),
        SOURCE.replace(b"16384", b"true"),
        SOURCE.replace(b"16384", b"NaN"),
        SOURCE.replace(b"{", b'{"more":1,'),
        SOURCE.replace(b"/1", b"/2"),
        SOURCE.replace(b'"format"', b'"form"'),
    ],
)
def test_bytes_that_are_no_document_are_refused(data: bytes) -> None:
    """With an error that names the file and repeats nothing of it, and none of Python's or pydantic's."""
    with pytest.raises(LakeError, match=r"^place: (it is damaged: .{1,120}|has format .{1,60}); ") as caught:
        SourceDoc.from_bytes(data, "place")
    assert "9999" not in str(caught.value)


def test_a_character_that_is_escaped_in_two_halves_is_a_character() -> None:
    """JSON writes characters beyond the first 65,536 as surrogate pairs."""
    document = SourceDoc.from_bytes(SOURCE.replace(b"app", b"\\ud83d\\ude00"), "place")
    assert document.database == "\U0001f600"
    assert SourceDoc.from_bytes(document.to_bytes(), "place") == document


def test_an_archive_is_relative_to_the_configuration(tmp_path: Path) -> None:
    """The working directory of the process that removes history does not matter."""
    file = tmp_path / "w.yaml"
    text = "lake: l\nsources: {{s: {{dsn: dbname=a, retention: {{archive: {archive}}}}}}}\n"
    file.write_text(text.format(archive="./old"), encoding="utf-8")
    assert load(file).sources["s"].retention.archive == str(tmp_path / "old")
    for refused in ("~/old", "ftp://bucket/old"):
        file.write_text(text.format(archive=refused), encoding="utf-8")
        with pytest.raises(ConfigFileError, match=r"sources\.s\.retention\.archive"):
            load(file)


def test_an_archive_in_the_lake_is_refused(tmp_path: Path) -> None:
    """Maintenance would remove it there, with the history that it is to keep; a symbolic link makes no difference."""
    (tmp_path / "l").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "l")
    file = tmp_path / "w.yaml"
    text = "lake: {lake}\nsources: {{s: {{dsn: dbname=a, retention: {{archive: {archive}}}}}}}\n"
    for lake, archive in [("l", "l"), ("l", "./l/old"), ("link", "l"), ("l", f"file://{tmp_path}/l/s")]:
        file.write_text(text.format(lake=lake, archive=archive), encoding="utf-8")
        with pytest.raises(ConfigFileError, match=r"sources\.s\.retention\.archive: is in the lake"):
            load(file)
    file.write_text(text.format(lake="l", archive="l-old"), encoding="utf-8")
    assert load(file).sources["s"].retention.archive == str(tmp_path / "l-old")


@pytest.mark.parametrize("key", ["cuts_s", "landing_s", "history_s"])
def test_a_time_before_the_calendar_is_refused(tmp_path: Path, key: str) -> None:
    """Python's dates begin with the year 1: a limit before that could only end maintenance with its OverflowError."""
    file = tmp_path / "w.yaml"
    text = f"lake: l\nsources: {{s: {{dsn: dbname=a, retention: {{{key}: %s}}}}}}\n"
    file.write_text(text % "1.0e+12", encoding="utf-8")
    with pytest.raises(ConfigFileError, match=rf"sources\.s\.retention\.{key}: must be at most 3155760000"):
        load(file)
    file.write_text(text % "3155760000", encoding="utf-8")
    assert load(file).sources["s"].retention.model_dump()[key] == 3_155_760_000
