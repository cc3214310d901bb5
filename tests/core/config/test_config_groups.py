"""The section `groups` of the configuration: sources of one database, each in one group at most."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.errors import ConfigError

_YAML = """\
lake: ./lake
sources:
  one: {dsn: "host=a port=5432 dbname=shop user=u"}
  two: {dsn: "host=a port=5432 dbname=shop user=other"}
  three: {dsn: "host=a port=5432 dbname=crm user=u"}
  four: {dsn: "host=b port=5432 dbname=shop user=u"}
  five: {dsn: {env: FIVE}}
"""


def _load(folder: Path, groups: str) -> dict[str, tuple[str, ...]]:
    file = folder / "lakeproof.yaml"
    file.write_text(f"{_YAML}groups: {groups}\n", encoding="utf-8")
    return load(file).groups


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ("", {}),
        ("{}", {}),
        ("{shop: [one, two]}", {"shop": ("one", "two")}),
        # What a secret says is compared when the group is compacted.
        ("{shop: [one, five]}", {"shop": ("one", "five")}),
    ],
)
def test_a_group_names_sources_of_one_database(
    tmp_path: Path, groups: str, expected: dict[str, tuple[str, ...]]
) -> None:
    """Users may differ."""
    assert _load(tmp_path, groups) == expected


@pytest.mark.parametrize(
    ("groups", "mistake"),
    [
        ("5", "groups: must be a mapping"),
        ("[one, two]", "groups: must be a mapping"),
        ("{shop: one}", "groups.shop: must be a list of two sources or more"),
        ("{shop: [one]}", "groups.shop: must be a list of two sources or more"),
        ("{shop: [1, 2]}", "groups.shop: must be a list of two sources or more"),
        ("{shop: [one, tow]}", "tow is no source; did you mean two?"),
        ("{shop: [one, one]}", "names one twice"),
        ("{one: [one, two]}", "groups.one: is the name of a source"),
        ("{Shop: [one, two]}", "groups.Shop: is not a name"),
        ("{shop: [one, two], erp: [five, two]}", "two is in the group shop already"),
        ("{shop: [one, three]}", "three has another server or database in its dsn than one"),
        ("{shop: [one, four]}", "four has another server or database in its dsn than one"),
    ],
)
def test_a_mistake_in_a_group_is_named(tmp_path: Path, groups: str, mistake: str) -> None:
    """Each with its place."""
    with pytest.raises(ConfigFileError) as raised:
        _load(tmp_path, groups)
    assert mistake in str(raised.value)


def test_a_source_is_not_called_as_the_folder_of_the_groups(tmp_path: Path) -> None:
    """The lake has a folder of that name."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text("lake: ./lake\nsources:\n  groups: {dsn: 'dbname=shop'}\n", encoding="utf-8")
    with pytest.raises(ConfigFileError, match="is taken by the groups' folder in the lake"):
        load(file)


def test_an_unknown_group_is_named(tmp_path: Path) -> None:
    """With the groups that there are."""
    file = tmp_path / "lakeproof.yaml"
    file.write_text(f"{_YAML}groups: {{shop: [one, two]}}\n", encoding="utf-8")
    config = load(file)
    assert (config.group_of("one"), config.group_of("three")) == ("shop", None)
    with pytest.raises(ConfigError, match="known here: shop"):
        config.group("erp")
