"""The YAML itself: where things stand, and what is refused before any value is looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.document import BYTES_MAX, DEPTH_MAX, YamlDocument, read_document


def read(folder: Path, text: str | bytes) -> YamlDocument:
    """`text` as a document."""
    file = folder / "w.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_document(file)


def test_every_key_and_entry_has_its_line(tmp_path: Path) -> None:
    """Lines count from 1; what is not there stands where its section does."""
    document = read(tmp_path, "a: 1\nb:\n  c: [x,\n    y]\n  d: {e: 2}\n")
    assert document.root == {"a": 1, "b": {"c": ["x", "y"], "d": {"e": 2}}}
    assert document.line(("a",)) == 1
    assert document.line(("b", "c", 1)) == 4
    assert document.line(("b", "d", "e")) == 5
    assert document.line(("b", "d", "none", "deeper")) == 5
    assert document.line(("none",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-5", -5),
        ("+5", 5),
        ("05", 5),
        ("0.5", 0.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("5.", 5.0),
        ("true", True),
        ("False", False),
        ("", None),
        ("~", None),
        ("null", None),
        ("off", "off"),
        ("yes", "yes"),
        ("1:30", "1:30"),
        ("2026-11-21", "2026-11-21"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        (".inf", ".inf"),
        ("2g", "2g"),
        ("512m", "512m"),
        ("1e", "1e"),
        ("'5'", "5"),
        ('"true"', "true"),
    ],
)
def test_a_plain_value_is_what_it_looks_like(tmp_path: Path, text: str, value: object) -> None:
    """YAML 1.2's core values; all else is a text."""
    actual = read(tmp_path, f"a: {text}\n").root["a"]
    assert actual == value
    assert type(actual) is type(value)


@pytest.mark.parametrize(
    ("text", "line", "phrase"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "a: appears twice; the first is on line 1"),
        ("a:\n  b: 1\n  'b': 2\n", 3, "a.b: appears twice; the first is on line 2"),
        ("a: &x 1\nb: *x\n", 2, "aliases (*name) are not read"),
        ("a: &x [*x]\n", 1, "aliases (*name) are not read"),
        ("a: {<<: *x}\n", 1, "aliases (*name) are not read"),
        ("a: 1\nb: !env X\n", 2, "tags (!name) are not read"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tags (!name) are not read"),
        ("a: !!set {x}\n", 1, "tags (!name) are not read"),
        ("a: !!int x\n", 1, "tags (!name) are not read"),
        ("a: ! x\n", 1, "tags (!name) are not read"),
        ("!!map {a: 1}\n", 1, "tags (!name) are not read"),
        ("a: [1\n", 2, "is not YAML"),
        ("a: b: c\n", 1, "is not YAML"),
        ("a: 1\n\tb: 2\n", 2, "is not YAML"),
        ("a: 'x\n", 2, "is not YAML"),
        ("a: 1\n---\nb: 2\n", 2, "is not YAML"),
        ("? [a, b]\n: 1\n", 1, "a key must be a text"),
        ("- a\n", 1, "must be a mapping"),
        ("text\n", 1, "must be a mapping"),
        ("", 1, "must be a mapping"),
        ("# nothing\n", 1, "must be a mapping"),
        (b"a: 1\nb: \xff\n", 2, "is not UTF-8"),
        (b"a: \x00\n", 0, "is not YAML"),
        (b"\xff\xfea\x00", 1, "is not UTF-8"),
        ("a: " + "[" * (DEPTH_MAX + 1), 1, f"is nested deeper than {DEPTH_MAX} levels"),
        ("a: " + "[" * 100_000, 1, f"is nested deeper than {DEPTH_MAX} levels"),
        ("a: " + "9" * 5_000 + "\n", 1, "a: is not a number"),
        ("#" * (BYTES_MAX + 1), 0, "is larger than"),
    ],
)
def test_a_file_that_is_not_plain_yaml_is_refused(tmp_path: Path, text: str | bytes, line: int, phrase: str) -> None:
    """The error has the line if there is one; the cost of parsing is limited."""
    actual = read(tmp_path, text).mistakes
    assert actual
    assert actual[-1].line == line
    assert phrase in str(actual[-1])


def test_a_mistake_in_the_yaml_never_repeats_the_line(tmp_path: Path) -> None:
    """The parser's own excerpt could show a secret."""
    actual = read(tmp_path, "password: hunter2: x\n").mistakes
    assert "hunter2" not in str(actual[0])


def test_an_explicit_tag_runs_nothing(tmp_path: Path) -> None:
    """A document with an explicit tag is refused before the tag is evaluated."""
    marker = tmp_path / "made"
    document = read(tmp_path, f"a: !!python/object/apply:pathlib.Path.touch ['{marker}']\n")
    assert not marker.exists()
    assert document.mistakes


def test_a_file_that_is_gone_is_an_oserror(tmp_path: Path) -> None:
    """The caller says which file."""
    with pytest.raises(OSError, match="No such file"):
        read_document(tmp_path / "none")


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    """Some editors write a byte order mark."""
    assert read(tmp_path, b"\xef\xbb\xbfa: 1\n").root == {"a": 1}
