"""A letter of the record of proofs is another: the sensor that keeps the drain going leaves the proofs alone, and works."""

from __future__ import annotations

import json
from pathlib import Path

import dagster as dg
import pytest

from lakeproof.config.load import load
from orchestration.outside_proofs import OutsideProofs
from resources import Settings
from tests.support.shell.sample import write_sample

_PROVED: dict[str, object] = {
    "at": "2026-01-01T00:00:00.000000Z",
    "basis": None,
    "by": "process 7 on h",
    "differed": None,
    "history": None,
    "left_out": [],
    "reason": None,
    "rows": 3,
    "status": "equal",
    "verified": None,
    "whole": None,
}


@pytest.mark.parametrize(("time", "shown"), [(_PROVED["at"], 2), ("2O26-01-01T00:00:00.000000Z", 0)])
def test_the_sensor_goes_on(tmp_path: Path, time: str, shown: int) -> None:
    """A proof of a sound record is shown, as an event and a check."""
    path = write_sample(tmp_path)
    record = tmp_path / "lake" / "shop" / "proved.json"
    record.parent.mkdir(parents=True)
    tables = {"shop/orders": _PROVED | {"at": time}}
    record.write_text(json.dumps({"format": "lakeproof.proved/1", "tables": tables, "views": {}}), encoding="utf-8")
    config = load(path)
    with dg.DagsterInstance.ephemeral() as instance:
        proofs = OutsideProofs.of(config, config.source("shop"))
        events, _ = proofs.unreported(instance, Settings(config_path=str(path)), "")
    assert len(events) == shown
