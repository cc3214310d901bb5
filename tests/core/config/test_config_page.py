"""docs/configuration.md and the model say the same: keys, defaults, limits and meanings."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo

from lakeproof.config.load import load
from lakeproof.config.location import StorageConfig
from lakeproof.config.model import (
    Config,
    DagsterConfig,
    DrainConfig,
    FreshnessConfig,
    HealthConfig,
    SnapshotConfig,
    SourceConfig,
    TableConfig,
    ViewConfig,
)
from lakeproof.config.section import Model
from lakeproof.config.section.alerts import AlertsConfig
from lakeproof.config.section.metrics import MetricsConfig
from lakeproof.config.section.spark import ComputeConfig, SparkConfig
from lakeproof.config.section.sql_catalog import CatalogConfig
from lakeproof.config.section.upkeep import CompactionConfig, RetentionConfig

PAGE = Path(__file__).parents[3] / "docs" / "configuration.md"
# The heading of each section's table, its model, and the keys by which file and model differ.
SECTIONS: dict[str, tuple[type[Model], frozenset[str], frozenset[str]]] = {
    "The top level": (Config, frozenset({"path", "faulty_views"}), frozenset()),
    "`sources.<name>`": (SourceConfig, frozenset({"name", "patterns"}), frozenset({"password"})),
    "`sources.<name>.table.<table>`": (TableConfig, frozenset(), frozenset()),
    "`sources.<name>.drain`": (DrainConfig, frozenset(), frozenset()),
    "`sources.<name>.snapshot`": (SnapshotConfig, frozenset(), frozenset()),
    "`sources.<name>.compaction`": (CompactionConfig, frozenset(), frozenset()),
    "`sources.<name>.retention`": (RetentionConfig, frozenset(), frozenset()),
    "`sources.<name>.health`": (HealthConfig, frozenset(), frozenset()),
    "`views.<name>`": (ViewConfig, frozenset({"name", "sql_file", "views", "external"}), frozenset({"sql"})),
    "`spark`": (SparkConfig, frozenset(), frozenset()),
    "`storage`": (StorageConfig, frozenset(), frozenset()),
    "`metrics`": (MetricsConfig, frozenset(), frozenset()),
    "`catalog`": (CatalogConfig, frozenset(), frozenset()),
    "`compute`": (ComputeConfig, frozenset(), frozenset()),
    "`dagster`": (DagsterConfig, frozenset(), frozenset()),
    "Freshness": (FreshnessConfig, frozenset(), frozenset()),
    "`alerts`": (AlertsConfig, frozenset(), frozenset()),
}
# What the model has no default for, because `load` gives it one.
GIVEN_BY_LOAD = {"publication": "`lakeproof_<name>`", "slot": "`lakeproof_<name>`"}
LIMITS = (("gt", ">"), ("ge", ">="), ("lt", "<"), ("le", "<="))


def rows(heading: str) -> dict[str, tuple[str, str, str]]:
    """Key -> (type, default, meaning) of the table under `heading`."""
    actual: dict[str, tuple[str, str, str]] = {}
    inside = False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            inside = line.lstrip("# ") == heading
        elif inside and line.startswith("| `"):
            key, kind, default, meaning = (cell.strip() for cell in line.strip("|").split(" | "))
            actual[key.strip("`")] = (kind, default, meaning)
    return actual


def fields() -> list[Any]:
    """Each field that has a row, with its section."""
    return [
        pytest.param(heading, key, field, id=f"{model.__name__}.{key}")
        for heading, (model, hidden, _) in SECTIONS.items()
        for key, field in model.model_fields.items()
        if key not in hidden
    ]


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_has_exactly_the_keys_of_the_model(heading: str) -> None:
    """The page has every key and no other, in the model's order."""
    model, hidden, added = SECTIONS[heading]
    keys = [key for key in rows(heading) if key not in added]
    assert keys == [key for key in model.model_fields if key not in hidden]
    assert added <= rows(heading).keys()


@pytest.mark.parametrize(("heading", "key", "field"), fields())
def test_the_page_has_the_default_of_the_model(heading: str, key: str, field: FieldInfo) -> None:
    """Defaults are written as in YAML."""
    default = rows(heading)[key][1]
    if field.is_required():
        assert default == GIVEN_BY_LOAD.get(key, "required")
        return
    value = field.get_default(call_default_factory=True)
    if isinstance(value, Model):
        assert (default, value) == ("`{}`", type(value)())
    else:
        expected = list(value) if isinstance(value, tuple) else value
        assert yaml.safe_load(default.strip("`")) == expected, json.dumps(expected)


@pytest.mark.parametrize(("heading", "key", "field"), fields())
def test_the_page_has_the_limits_of_the_model(heading: str, key: str, field: FieldInfo) -> None:
    """Numbers only; a text's form is prose."""
    limits = [
        f"{sign} {getattr(part, name)}"
        for name, sign in LIMITS
        for part in field.metadata
        if getattr(part, name, None) is not None
    ]
    assert re.findall(r"[<>]=? [0-9]+", rows(heading)[key][0]) == limits


@functools.cache
def meanings(model: type[Model]) -> dict[str, str]:
    """The texts below the keys of a section, and of the sections that it is made of."""
    actual: dict[str, str] = {}
    for part in model.__mro__:
        if issubclass(part, Model):
            body = ast.parse(inspect.getsource(part)).body[0]
            assert isinstance(body, ast.ClassDef)
            for key, text in pairwise(body.body):
                if (
                    isinstance(key, ast.AnnAssign)
                    and isinstance(text, ast.Expr)
                    and isinstance(text.value, ast.Constant)
                ):
                    actual[ast.unparse(key.target)] = " ".join(str(text.value.value).split())
    return actual


@pytest.mark.parametrize("heading", SECTIONS)
def test_the_page_has_the_meanings_of_the_model(heading: str) -> None:
    """The page's text may be longer than the model's."""
    model, hidden, _ = SECTIONS[heading]
    texts = {key: text for key, text in meanings(model).items() if key not in hidden}
    assert texts
    assert {key: text for key, text in texts.items() if not rows(heading)[key][2].startswith(text)} == {}


def test_the_example_on_the_page_loads(tmp_path: Path) -> None:
    """The example loads unchanged."""
    text = PAGE.read_text(encoding="utf-8").split("```yaml\n")[1].split("```")[0]
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "revenue_per_customer.sql").write_text("SELECT 1")
    (tmp_path / "lakeproof.yaml").write_text(text)
    assert load(tmp_path / "lakeproof.yaml").views["revenue_per_customer"].reads["orders"][0] == "shop"


def test_the_page_has_the_values_of_the_fixed_limits() -> None:
    """The values are those in the source files."""
    text = PAGE.read_text(encoding="utf-8")
    actual = re.findall(r"^\| `(lakeproof[\w.]+)\.([A-Z_]+)` \| `([\d.]+)` \|", text, re.MULTILINE)
    assert len(actual) >= 10
    for module, name, value in actual:
        assert str(getattr(importlib.import_module(module), name)) == value, name
