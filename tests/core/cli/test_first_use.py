"""The waits of a machine's first use are named before they begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.cli.context import report_spark
from lakeproof.config.model import Config
from lakeproof.events import Event


def test_jars_that_are_fetched_are_named_once_and_the_start_always(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was shown between the command and its first bar, for a minute."""
    events = list[Event]()
    monkeypatch.setenv("LAKEPROOF_JARS", str(tmp_path / "jars"))
    report_spark(Config(path=tmp_path / "w.yaml", lake=str(tmp_path), sources={}), events.append)
    report_spark(Config(path=tmp_path / "w.yaml", lake="s3://bucket/lake", sources={}), events.append)
    monkeypatch.delenv("LAKEPROOF_JARS")
    assert [event.message for event in events] == [
        "fetching Delta's jars, once on this machine (12 MB)",
        "starting Spark",
        "fetching Delta's jars and the jars for S3, once on this machine (24 MB)",
        "starting Spark",
    ]
