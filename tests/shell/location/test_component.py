"""The wheel in somebody's project: `dg` finds the component, scaffolds it, checks it, and loads what it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.errors import ConfigError
from orchestration.component import SourceComponent
from tests.support.shell.sample import write_sample

ROOT = Path(__file__).parents[3]
_PROJECT = """\
[project]
name = "theirs"
version = "0"
[tool.dg]
directory_type = "project"
[tool.dg.project]
root_module = "theirs"
"""
_DEFINITIONS = """\
from pathlib import Path
import dagster as dg
defs = dg.load_from_defs_folder(path_within_project=Path(__file__).parent)
"""
# As docs/dagster.md has it.
_POST_PROCESSING = """
post_processing:
  assets:
    - target: "group:views"
      attributes:
        automation_condition: "{{ automation_condition.eager() }}"
"""


def test_some_sources_bring_their_own_views_and_no_part_of_a_group(tmp_path: Path) -> None:
    """Two components on one file go together, and a wrong name is named."""
    path = write_sample(tmp_path)
    parts = [SourceComponent(config=path.name, sources=[name]).definitions(tmp_path) for name in ("shop", "crm")]
    keys = [{key.to_user_string() for key in part.resolve_asset_graph().get_all_asset_keys()} for part in parts]
    assert "views/copy" in keys[0]
    assert not [key for key in keys[0] if "crm" in key or "per_customer" in key]
    dg.Definitions.validate_loadable(dg.Definitions.merge(*parts))
    with pytest.raises(ConfigError, match="source nope"):
        SourceComponent(config=path.name, sources=["nope"]).definitions(tmp_path)
    path.write_text(path.read_text(encoding="utf-8") + "groups: {g: [shop, unlisted]}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="group g: only a part of it is named, without unlisted"):
        SourceComponent(config=path.name, sources=["shop"]).definitions(tmp_path)


@pytest.mark.full
def test_an_installed_wheel_is_a_component_of_a_fresh_project(tmp_path: Path) -> None:
    """Nothing of it stands at the top level, where the project has an `assets` of its own."""
    site, project = tmp_path / "site", tmp_path / "project"
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    installer = [sys.executable, "-m", "uv", "pip", "install", "-q", "--offline", "--no-deps", "--target", str(site)]
    subprocess.run([*installer, str(wheel)], check=True, cwd=tmp_path)
    (project / "theirs" / "defs").mkdir(parents=True)
    (project / "assets").mkdir()
    (project / "assets" / "__init__.py").write_text("MINE = True\n", encoding="utf-8")
    (project / "pyproject.toml").write_text(_PROJECT, encoding="utf-8")
    (project / "theirs" / "__init__.py").touch()
    (project / "theirs" / "defs" / "__init__.py").touch()
    (project / "theirs" / "definitions.py").write_text(_DEFINITIONS, encoding="utf-8")
    write_sample(project)
    others = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part and Path(part) != ROOT]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(site), str(project), *others]),
        "DAGSTER_HOME": str(tmp_path),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "DG_CLI_CONFIG": str(tmp_path / "dg.toml"),
    }

    def run(*command: str) -> str:
        ended = subprocess.run(
            [sys.executable, *command], cwd=project, env=environment, check=False, capture_output=True, text=True
        )
        assert ended.returncode == 0, f"{command}: {ended.stdout}{ended.stderr}"
        return ended.stdout

    dg_cli = ("-c", "from dagster_dg_cli.cli import main; main()")
    listed = json.loads(run(*dg_cli, "list", "components", "--json"))["items"]
    assert "lakeproof_dagster.SourceComponent" in {component["key"] for component in listed}
    options = ("--config", "../../../lakeproof.yaml", "--sources", "shop")
    run(*dg_cli, "scaffold", "defs", "lakeproof_dagster.SourceComponent", "shop", *options)
    with (project / "theirs" / "defs" / "shop" / "defs.yaml").open("a", encoding="utf-8") as file:
        file.write(_POST_PROCESSING)
    run(*dg_cli, "check", "yaml")
    run(*dg_cli, "check", "defs")
    keys = run(
        "-c",
        "from theirs.definitions import defs; import assets, sys; assert assets.MINE\n"
        "graph = (defs() if callable(defs) else defs).resolve_asset_graph()\n"
        "conditions = [n for n in map(graph.get, graph.get_all_asset_keys()) if n.automation_condition is not None]\n"
        "assert {n.group_name for n in conditions} == {'views'}\n"
        "print(*sorted(key.to_user_string() for key in graph.get_all_asset_keys()), sep='\\n')\n"
        "assert not {'jobs', 'resources', 'orchestration'} & set(sys.modules)",
    ).splitlines()
    assert {"slots/shop", "current/shop/shop/orders", "proof/views/copy"} < set(keys)
    here = SourceComponent(config="lakeproof.yaml", sources=["shop"]).definitions(project).resolve_asset_graph()
    assert keys == sorted(key.to_user_string() for key in here.get_all_asset_keys())
