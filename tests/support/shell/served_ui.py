"""The UI as `make ui` starts it, on a database with the demonstration's tables and a lake that has their first copy.

Driving it in a browser does not belong here (`browsing.py`), nor what a person should see (`test_ui_in_a_browser.py`).
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from string import Template

import pytest

from demo import shop
from demo.processes import Children
from demo.server import free_port
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.publish import apply, plan
from lakeproof.config.load import load
from lakeproof.storage.document import canonical
from lakeproof.storage.times import text_of_time, time_of
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of

ROOT = Path(__file__).resolve().parents[3]
DAYS = 7
_SEED = 20260101
_START_S = 240.0


@dataclass(frozen=True, slots=True)
class ServedUi:
    """A UI at `url`, the database that it drains, its script's process, and what goes to its log and to its terminal."""

    url: str
    database: Database
    script: subprocess.Popen[bytes]
    log: Path
    terminal: Path

    def shown(self) -> list[str]:
        """The lines in the terminal."""
        return self.terminal.read_text(encoding="utf-8").splitlines()


def write_config(folder: Path, database: Database) -> Path:
    """The demonstration's configuration for this database, with days of two tables and an event every few seconds."""
    template = Template((ROOT / "demo" / "lakeproof.yaml.in").read_text(encoding="utf-8"))
    query = ROOT / "demo" / "views" / "revenue_per_product.sql"
    text = template.substitute(lake=folder / "lake", port=database.server.port, sql=query)
    text = text.replace("dbname=shop user=lakeproof", f"dbname={database.name} user=postgres")
    text = text.replace("slot: lakeproof_shop", f"slot: {database.name}\n    daily: [shop.orders, shop.customers]")
    # A second server reads nothing of this one's while the hour changes.
    text = text.replace("proof_interval: hourly", 'proof_interval: "off"')
    path = folder / "lakeproof.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def fill(database: Database) -> None:
    """The demonstration's two schemas, with comments as a DBA writes them."""
    database.server.run("pgbench", "--initialize", "--quiet", "--scale=1", database.name)
    with database.connect(autocommit=False) as owner:
        shop.create_schema(owner)
        shop.fill(owner, random.Random(_SEED))
        owner.execute("COMMENT ON TABLE shop.customers IS 'Whoever has ordered once'")
        owner.execute("COMMENT ON COLUMN shop.orders.total IS 'in euro, with tax'")


@contextmanager
def served_ui(folder: Path, database: Database) -> Iterator[ServedUi]:
    """Make the first copy as if it were a week old, and start the UI's processes; all have ended afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAKEPROOF_DEMO_PASSWORD", password_of(database))
        fill(database)
        config = load(write_config(folder, database))
        apply(config, "shop", plan(config, "shop"))
        bootstrap(config, "shop")
        _copied_earlier(Path(config.lake), DAYS - 1)
        port = free_port()
        environment = {
            **os.environ,
            "LAKEPROOF_CONFIG": str(config.path),
            "DAGSTER_HOME": str(folder / "dagster"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
            "GX_ANALYTICS_ENABLED": "false",
        }
        command = [sys.executable, "-W", "ignore", "-m", "scripts.ui", "--port", str(port)]
        children = Children(folder)
        try:
            script = children.start("ui", command, environment)
            log = folder / "dagster" / f"ui-{port}" / "ui.log"
            ui = ServedUi(f"http://127.0.0.1:{port}", database, script, log, folder / "ui.log")
            _wait(ui)
            yield ui
        finally:
            children.stop()


def _copied_earlier(lake: Path, days: int) -> None:
    """Move the first copy's beginning back in its documents: days that nobody can wait for."""
    for document in lake.glob("shop/snapshots/*/*/*.json"):
        fields = json.loads(document.read_bytes())
        if "started_at" in fields:
            fields["started_at"] = text_of_time(time_of(fields["started_at"]) - timedelta(days=days))
            document.write_bytes(canonical(fields))


def _wait(ui: ServedUi) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        assert ui.script.poll() is None, ui.shown()
        try:
            with direct.open(f"{ui.url}/server_info", timeout=5):
                return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(f"the UI did not answer in {_START_S:.0f} s: {ui.shown()}")
