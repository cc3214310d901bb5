"""The workflows of a forge: of the form that GitHub reads, each step a target of the Makefile, each part one of the tests'.

The schema is SchemaStore's (Apache-2.0), in `golden/github-workflows.schema.json`.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from scripts.parts import PARTS, PYTHONS

ROOT = Path(__file__).resolve().parents[3]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
SCHEMA = Path(__file__).parent / "github-workflows.schema.json"


class _Loader(yaml.SafeLoader):
    """YAML 1.2, as GitHub reads it: `on` is a text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))


def _read(path: Path) -> Any:
    return yaml.load(path.read_text(encoding="utf-8"), _Loader)  # noqa: S506  a loader of safe values


def _filled(command: str, place: Mapping[str, Any]) -> str:
    """Return a command as it is at a place of its job's matrix."""
    for name, value in place.items():
        command = command.replace(f"${{{{ matrix.{name} }}}}", str(value))
    assert "${{" not in command, command
    return command


def _commands() -> Iterator[str]:
    """Yield each command of each job, once for each place of the job's matrix."""
    for path in WORKFLOWS:
        for job in _read(path)["jobs"].values():
            matrix = dict(job.get("strategy", {}).get("matrix", {}))
            includes = matrix.pop("include", None)
            places = includes or [{name: value} for name, values in matrix.items() for value in values] or [{}]
            for place in places:
                for step in job["steps"]:
                    if "run" in step:
                        yield _filled(step["run"], place)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_the_form_that_a_forge_reads(path: Path) -> None:
    """Its keys and values are those of the schema, and every job ends."""
    workflow = _read(path)
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(workflow)
    assert {name for name, job in workflow["jobs"].items() if "timeout-minutes" not in job} == set()
    assert workflow["permissions"] == {"contents": "read"}


def test_a_workflow_with_a_misspelt_key_is_refused() -> None:
    """The schema is in force."""
    workflow = _read(WORKFLOWS[0])
    workflow["jobs"]["check"]["run-on"] = workflow["jobs"]["check"].pop("runs-on")
    schema = jsonschema.Draft7Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    assert not schema.is_valid(workflow)


def test_every_step_is_a_target_that_runs_here() -> None:
    """`make TARGET`, with variables that the Makefile has; parts of the tests are parts that there are."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    variables = set(re.findall(r"^([A-Z]+) \?=", makefile, re.MULTILINE))
    parts = {part.name for part in PARTS["test-all"]}
    commands = list(_commands())
    assert len(commands) > len(WORKFLOWS)
    for command in commands:
        program, target, *settings = shlex.split(command)
        assert (program, target in targets) == ("make", True), command
        given = dict(setting.split("=", 1) for setting in settings)
        assert given.keys() <= variables, command
        assert set(shlex.split(given.get("ONLY", ""))) <= parts, command


def test_every_part_is_one_of_a_workflow() -> None:
    """What `make test-all` runs, and a forge does not, would be seen by nobody; the tools are in `make check`.

    A forge runs `make test` itself with each Python.
    """
    given = (dict(setting.split("=", 1) for setting in shlex.split(command)[2:]) for command in _commands())
    parts = {part for variables in given for part in shlex.split(variables.get("ONLY", ""))}
    parts |= {f"Python {version}" for version in PYTHONS}
    assert {part.name for part in PARTS["test-all"] if part not in PARTS["check"]} - parts == set()


def test_every_python_and_server_that_is_promised_is_in_a_matrix() -> None:
    """Python 3.10 to 3.13; PostgreSQL 14 to 17 beside the newest, which all others run on."""
    commands = " ".join(_commands())
    assert set(re.findall(r"PYTHON=python(3\.\d+)", commands)) == {"3.11", *PYTHONS}
    assert set(re.findall(r'"PostgreSQL (\d+) with Spark"', commands)) == {"14", "15", "16", "17"}
