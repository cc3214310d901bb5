"""One YAML file as plain values, with the line of every key and entry.

`model` defines valid values. This module knows only YAML, and a small part of it: mappings, lists, text, numbers, true,
false and null. Aliases, tags and duplicate keys are refused, so what is read is what is written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lakeproof.config.mistakes import KeyPath, Mistake, dotted

# Far above any real file; they limit what a wrong file can cost.
BYTES_MAX = 1 << 20
DEPTH_MAX = 24

_TAG = "tag:yaml.org,2002:"


class _Loader(yaml.SafeLoader):
    """Resolves YAML 1.2's core values: `off`, `yes` and `1:30` are texts, as they look."""

    yaml_implicit_resolvers: dict[str, object] = {}  # noqa: RUF012  (the base class declares it so)


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^[-+]?[0-9]+$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$"),
    list("-+.0123456789"),
)


@dataclass(slots=True)
class YamlDocument:
    """A file's values (`root`) and their lines; `mistakes` are those of the YAML itself."""

    root: dict[str, object] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list)

    def line(self, path: KeyPath) -> int:
        """Return the line of the value at `path`, or of the nearest section around it; 0 if there is none."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 0)

    def add(self, path: KeyPath, text: str) -> None:
        self.mistakes.append(Mistake(self.line(path), dotted(path), text))


def read_document(file: Path) -> YamlDocument:
    """Read `file`; raises OSError if it can't be read. Every other error is in `mistakes`."""
    with file.open("rb") as stream:
        data = stream.read(BYTES_MAX + 1)
    document = YamlDocument()
    if len(data) > BYTES_MAX:
        document.mistakes.append(Mistake(0, "", f"is larger than {BYTES_MAX} bytes"))
        return document
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        document.mistakes.append(Mistake(line, "", "is not UTF-8"))
        return document
    _parse(text, document)
    return document


def _parse(text: str, document: YamlDocument) -> None:
    try:
        if not _plain(text, document):
            return
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        document.mistakes.append(_syntax(error))
        return
    if not isinstance(node, yaml.MappingNode):
        document.mistakes.append(Mistake(1, "", "must be a mapping with the keys lake and sources"))
        return
    document.lines[()] = 1
    document.root = _mapping(node, (), document)


def _plain(text: str, document: YamlDocument) -> bool:
    """Refuse, before anything is built, constructs that could make a small file large or deep."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent):
            document.mistakes.append(Mistake(line, "", "aliases (*name) are not read; write the value out"))
            return False
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            document.mistakes.append(Mistake(line, "", "tags (!name) are not read"))
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > DEPTH_MAX:
            document.mistakes.append(Mistake(line, "", f"is nested deeper than {DEPTH_MAX} levels"))
            return False
    return True


def _syntax(error: yaml.YAMLError) -> Mistake:
    # Only the parser's message: its excerpt of the file could show a secret.
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        line = 0 if mark is None else mark.line + 1
        return Mistake(line, "", f"is not YAML: {error.problem or error.context}")
    return Mistake(0, "", "is not YAML: it holds a character that is not allowed")


def _value(node: yaml.Node, path: KeyPath, document: YamlDocument) -> object:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, document)
    if isinstance(node, yaml.SequenceNode):
        return _sequence(node, path, document)
    return _scalar(node, path, document)


def _mapping(node: yaml.MappingNode, path: KeyPath, document: YamlDocument) -> dict[str, object]:
    result: dict[str, object] = {}
    first: dict[str, int] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            document.mistakes.append(Mistake(line, dotted(path), "a key must be a text"))
            continue
        key = key_node.value
        here = (*path, key)
        if key in result:
            document.mistakes.append(Mistake(line, dotted(here), f"appears twice; the first is on line {first[key]}"))
            continue
        first[key] = document.lines[here] = line
        result[key] = _value(value_node, here, document)
    return result


def _sequence(node: yaml.SequenceNode, path: KeyPath, document: YamlDocument) -> list[object]:
    for index, child in enumerate(node.value):
        here = (*path, index)
        document.lines[here] = child.start_mark.line + 1
    return [_value(child, (*path, index), document) for index, child in enumerate(node.value)]


def _scalar(node: yaml.Node, path: KeyPath, document: YamlDocument) -> object:
    tag, text = node.tag.removeprefix(_TAG), str(node.value)
    if tag == "str":
        return text
    if tag == "null":
        return None
    if tag == "bool":
        return text.lower() == "true"
    try:
        return int(text) if tag == "int" else float(text)
    except ValueError:  # a number of thousands of digits
        document.add(path, "is not a number")
        return None
