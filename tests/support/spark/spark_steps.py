"""Steps of tests with a session: what has changed into the lake, and a proof of the tables alone."""

from __future__ import annotations

from lakeproof.commands.compact import compact
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.events import Stop, silent
from lakeproof.lake.cycle.runner import CutReport
from lakeproof.lake.spark_on_demand import AnySpark
from lakeproof.proof.lake.by_itself import LakePart
from lakeproof.proof.run import ProofRequest

# For a test that asks for what its tables are: the proofs of their histories, which are due too, take as long again.
TABLES_ALONE = ProofRequest(part=LakePart())


def into_the_lake(config: Config, spark: AnySpark, source: str = "shop") -> list[CutReport]:
    """Drain what is there now, and compact it."""
    drain(config, source, Until.caught_up())
    return compact(config, source, spark, silent, Stop())
