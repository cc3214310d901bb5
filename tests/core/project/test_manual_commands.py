"""Every command on a page of the manual is one that there is, with options that it has.

The pages that a newcomer types from are run as they stand (`tests/scenarios/test_manual_pages.py`); here each `lakeproof`
line goes through the real parser, other commands are looked up, and those that can't be are listed with the reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import sqlglot
import yaml

from lakeproof.cli.arguments import COMMANDS, parser
from lakeproof.config.load import load
from scripts import reference
from tests.support.pages.manual_blocks import Command, blocks, commands, in_sentences

ROOT = Path(__file__).parents[3]
_MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
_PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
# They are looked up here.
_CHECKED = {"lakeproof", "make", "pip", ".venv/bin/python", "python", "docker", "kubectl"}
# What is left of a page's commands, and why no test of the manual tries it.
_NOT_TRIED = {
    "cd": "a folder of the checkout; the test would have to go there",
    "export": "it sets a variable of the reader's shell",
    "install": "it makes a folder for a group that a machine may not have",
    "psql": "run by tests/scenarios/test_manual_pages.py, wherever it is on a page that is run",
    "dg": "run by tests/shell/location/test_component.py in a project of its own",
    "spark-class": "it comes with a distribution of Spark; tests/support/spark/fix_cluster.py starts the same classes",
    "./make_secrets.sh": "it belongs to the containers, which need Docker",
    "pg_recvlogical": "PostgreSQL's own",
    "exec": "a shell's own",
}
_PROGRAMS = frozenset(_CHECKED | _NOT_TRIED.keys())
# YAML of others, by its first key.
_FOREIGN = {
    "runLauncher": "values of Dagster's Helm chart",
    "type": "a component of Dagster's; tests/shell/location/test_component.py loads one",
    "post_processing": "a part of a component of Dagster's; the same test loads it",
    "receivers": "a configuration of OpenTelemetry's collector",
    "services": "Docker's",
    "apiVersion": "Kubernetes'",
}
# For blocks that show a part of a configuration.
_TABLES = ["shop.orders", "shop.lines", "shop.order_lines", "shop.customers", "public.orders", "public.order_lines"]


def _commands(*programs: str) -> list[Command]:
    return [command for command in commands(_PROGRAMS) if command.words[0] in programs]


def test_every_command_is_tried_or_excused() -> None:
    """A program that nobody has looked at needs a check or a reason; an excuse that nobody needs goes."""
    words = {command.words[0] for command in commands(_PROGRAMS)}
    assert words - _PROGRAMS == set()
    assert _NOT_TRIED.keys() - words <= {"exec", "pg_recvlogical"}
    assert len(commands(_PROGRAMS)) > 100


@pytest.mark.parametrize("command", _commands("kubectl"), ids=str)
def test_a_manifest_is_there(command: Command) -> None:
    """No cluster is at hand to give it to."""
    files = [word for option, word in zip(command.words, command.words[1:], strict=False) if option == "-f"]
    assert all((ROOT / file).is_file() for file in files), str(command)


@pytest.mark.parametrize("command", _commands("lakeproof", "docker"), ids=str)
def test_a_command_of_lakeproof_is_parsed(command: Command) -> None:
    """Inside of a container, too; the usage with its brackets is no command."""
    if "lakeproof" not in command.words or "COMMAND" in command.words:
        return
    words = command.words[command.words.index("lakeproof") + 1 :]
    try:
        parser().parse_args(words)
    except SystemExit as error:
        pytest.fail(f"{command}: exit status {error.code}", pytrace=False)


@pytest.mark.parametrize(("page", "text"), sorted(set(in_sentences())))
def test_a_command_in_a_sentence_is_one(page: str, text: str) -> None:
    """Its name and its options are there; its arguments may be left out or stand for others."""
    words = re.split(r"[\s|]+", text)[1:]
    named = [word for word in words if re.fullmatch(r"[a-z-]+", word) and word in COMMANDS]
    options = {word for word in words if re.fullmatch(r"-{1,2}[a-z-]+", word)}
    if not named:
        assert options <= {"-c", "--json", "--debug", "--help", "--version"} or "COMMAND" in words, f"{page}: {text}"
        return
    command = dict(reference.commands())[named[0]].parser
    # psql's option is behind a pipe.
    assert options <= {*command._option_string_actions, "-U"}, f"{page}: {text}"


@pytest.mark.parametrize("command", _commands("make"), ids=str)
def test_a_target_of_make_is_there(command: Command) -> None:
    """Targets and variables are those of the Makefile."""
    for word in command.words[1:]:
        name = word.partition("=")[0]
        where = rf"^{name} \?=|\b{name}\b" if "=" in word else rf"^{re.escape(word)}:"
        assert re.search(where, _MAKEFILE, re.MULTILINE), str(command)


@pytest.mark.parametrize("command", _commands("pip"), ids=str)
def test_an_extra_of_the_package_is_there(command: Command) -> None:
    """`pip install '.[spark]'` names extras of pyproject.toml."""
    extras = re.findall(r"^(\w+) = \[", _PROJECT.split("[project.optional-dependencies]")[1], re.MULTILINE)
    for listed in re.findall(r"\[(.*)\]", " ".join(command.words)):
        assert set(listed.split(",")) <= set(extras), str(command)


@pytest.mark.parametrize("command", _commands(".venv/bin/python", "python"), ids=str)
def test_a_module_or_a_script_is_there_with_its_options(command: Command) -> None:
    """Options are looked up in the module's own text; pytest's paths must exist."""
    words = list(command.words[1:])
    name = words[1].replace(".", "/") + ".py" if words[0] == "-m" else words[0]
    rest = words[2:] if words[0] == "-m" else words[1:]
    if name == "pytest.py":
        assert all((ROOT / word).exists() for word in rest if word.startswith("tests")), str(command)
        return
    assert (ROOT / name).is_file(), str(command)
    text = (ROOT / name).read_text(encoding="utf-8")
    for word in rest:
        if word.startswith("--"):
            assert word in text or "webserver" in name, f"{command}: {word}"


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_a_configuration_on_a_page_loads(block: Any, tmp_path: Path) -> None:
    """A part of one is put into a small whole; every key and value goes through the model."""
    document = yaml.safe_load(block.text)
    if next(iter(document)) in _FOREIGN:
        return
    source = {"dsn": "host=localhost dbname=shop", "tables": _TABLES}
    parts = {key: document.pop(key) for key in ("tables", "exclude", "table") if key in document}
    sources = document.pop("sources", {"shop": {}})
    whole = {"lake": "./lake", **document, "sources": {n: {**source, **parts, **given} for n, given in sources.items()}}
    for name, view in whole.get("views", {}).items():
        (tmp_path / view["sql"]).parent.mkdir(exist_ok=True)
        (tmp_path / view["sql"]).write_text(f"SELECT 1 AS {name}")
    (tmp_path / "lakeproof.yaml").write_text(yaml.safe_dump(whole))
    assert load(tmp_path / "lakeproof.yaml").sources.keys() == sources.keys()


@pytest.mark.parametrize("block", blocks("sql"), ids=str)
def test_sql_on_a_page_is_parsed(block: Any) -> None:
    """By PostgreSQL's grammar, or Spark's for what reads the lake."""
    dialect = "spark" if "get_json_object" in block.text else "postgres"
    statements = [statement for statement in sqlglot.parse(block.text, dialect=dialect) if statement is not None]
    assert statements, str(block)
