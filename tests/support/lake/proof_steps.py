"""Steps of tests that prove a source without Spark: changes into the lake, and what a proof found not equal."""

from __future__ import annotations

from typing import Any

import pytest

from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.result import ProofReport


def no_jvm() -> Any:
    """Fail: whoever asks for a session would have started a JVM."""
    pytest.fail("a JVM was to be started")


WITHOUT = SparkOnDemand(no_jvm)


def table(name: str) -> TableName:
    """A table of the schema public."""
    return TableName("public", name)


def into_the_lake(config: Config, spark: AnySpark = WITHOUT) -> None:
    """Drain and compact, without Spark if it can be."""
    drain(config, "shop", Until.caught_up())
    compact(config, "shop", spark, silent, Stop())


def wrong_in(proof: ProofReport) -> dict[str, str]:
    """Return all that is not equal: tables by name, histories with `history of`."""
    wrong = {t.name: f"{p.status}: {p.reason}" for t, p in proof.tables.items() if p.status != "equal"}
    histories = {} if proof.lake is None else proof.lake.histories
    return wrong | {
        f"history of {t.name}": f"{p.status}: {p.reason}" for t, p in histories.items() if p.status != "equal"
    }
