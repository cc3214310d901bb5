"""The code location as Dagster loads it: by file, from any folder, with no database, no Java and no secret there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.shell.sample import write_sample

ROOT = Path(__file__).resolve().parents[3]

_LOAD = """
import json, sys
from dagster._core.code_pointer import FileCodePointer
import socket
def refuse(*_):
    raise AssertionError("a connection was tried")
socket.socket.connect = refuse
defs = FileCodePointer(sys.argv[1], "defs", None).load_target()
graph = defs.resolve_asset_graph()
print(json.dumps({"keys": sorted(k.to_user_string() for k in graph.get_all_asset_keys()),
                  "loaded": sorted(sys.modules)}))
"""


def _bare_environment(home: Path, **more: str) -> dict[str, str]:
    # No PATH to a Java, no secret, no Dagster home of anybody's.
    return {"PATH": "/nonexistent", "HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1", **more}


def _load(folder: Path, **environment: str) -> tuple[dict[str, list[str]], str]:
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(ROOT / "orchestration" / "definitions.py")],
        cwd=folder,
        env=_bare_environment(folder, **environment),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_it_loads_from_another_folder_without_database_java_or_secrets(tmp_path: Path) -> None:
    """Loading reads the configuration and nothing else: neither an environment variable of a secret nor a socket."""
    actual, _ = _load(tmp_path, LAKEPROOF_CONFIG=str(write_sample(tmp_path)))
    assert "current/shop/shop/orders" in actual["keys"]
    assert "great_expectations" not in actual["loaded"]


def test_without_a_configuration_it_loads_empty_and_says_so(tmp_path: Path) -> None:
    """The remedy stands in the log of the code server."""
    if (ROOT / "lakeproof.yaml").exists():
        actual, _ = _load(tmp_path, LAKEPROOF_CONFIG=str(ROOT / "lakeproof.yaml"))
        assert actual["keys"]
        return
    actual, message = _load(tmp_path)
    assert actual["keys"] == []
    assert "LAKEPROOF_CONFIG" in message


def test_dagster_validates_the_workspace_from_another_folder(tmp_path: Path) -> None:
    """`workspace.yaml` names the file relative to itself, so it works wherever the command is called."""
    environment = os.environ | {
        "DAGSTER_HOME": str(tmp_path),
        "LAKEPROOF_CONFIG": str(write_sample(tmp_path)),
        "DAGSTER_DISABLE_TELEMETRY": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "dagster", "definitions", "validate", "-w", str(ROOT / "workspace.yaml")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "lakeproof" in done.stdout + done.stderr


def test_a_wrong_configuration_is_named_with_its_line(tmp_path: Path) -> None:
    """Dagster shows the mistakes in place of the location."""
    path = tmp_path / "lakeproof.yaml"
    path.write_text("lake: lake\nsources:\n  shop:\n    dsn: dbname=x\n    tabels: [a.b]\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _LOAD, str(ROOT / "orchestration" / "definitions.py")],
        cwd=tmp_path,
        env=_bare_environment(tmp_path, LAKEPROOF_CONFIG=str(path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode != 0
    assert "line 5" in done.stderr
    assert "tabels" in done.stderr
