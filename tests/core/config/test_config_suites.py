"""A table's expectations as a file of Great Expectations: what is wrong in it is a mistake of the configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError


@pytest.mark.parametrize("severity", [[], {}, 3, None, "odd"])
def test_an_odd_severity_is_a_mistake_of_the_file(tmp_path: Path, severity: object) -> None:
    """Whatever JSON stands there, the message names the suite's file and the expectation."""
    suite = {
        "expectations": [
            {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}, "severity": severity}
        ]
    }
    (tmp_path / "s.json").write_text(json.dumps(suite), encoding="utf-8")
    file = tmp_path / "lakeproof.yaml"
    file.write_text(
        'lake: ./lake\nsources:\n  shop:\n    dsn: "host=127.0.0.1 dbname=shop user=x"\n'
        "    table: {public.items: {expectations: s.json}}\n",
        encoding="utf-8",
    )
    with pytest.raises(ConfigFileError, match=r"s\.json: expectation 1, whose severity is none of"):
        load(file)
