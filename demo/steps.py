"""The demonstration's pipeline, step by step: publication, bootstrap, compaction, view, proof.

It is a separate process, which `demo.run` may kill at any moment, so that Ctrl-C doesn't wait for a merge. The server, the
workload and the drain do not belong here (`demo.run`).
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from demo.output import count, print_table, step
from demo.state import DemoError
from lakeproof.errors import LakeproofError
from lakeproof.postgres.connections.connect import connect

if TYPE_CHECKING:
    from dagster import ExecuteInProcessResult

    from demo.dagster_runs import Runs, TableRow

# The proof runs a third cycle, at its own position.
CYCLES = 2
_BETWEEN_CYCLES_S = 2.0
# More rows than `compaction.spark_rows` in lakeproof.yaml, so Spark compacts them; what is less, Arrow does in the process.
_MASS_UPDATE = "UPDATE public.pgbench_accounts SET abalance = abalance + 1 WHERE aid <= 60000"


def main() -> int:
    """Return 0 if every table is proved equal, 1 if not, 2 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("config", type=Path)
    parser.add_argument("source")
    arguments = parser.parse_args()
    try:
        rows = _pipeline(arguments.config, arguments.source)
    except (DemoError, LakeproofError) as error:
        # To stdout: stderr has Spark's own messages and goes to a log.
        print(f" failed\n\nlakeproof demo: {error}", flush=True)
        return 2
    except Exception as error:  # noqa: BLE001  (status 1 means "differs", and Python would exit with 1)
        traceback.print_exc()
        log = arguments.config.with_name("steps.log")
        print(
            f" failed\n\nlakeproof demo: {type(error).__name__}, a mistake in lakeproof; {log} has the details",
            flush=True,
        )
        return 2
    print_table([
        (str(row.table), count(row.source_rows), count(row.lake_rows), row.position or "-", _word(row.status))
        for row in rows
    ])  # fmt: skip
    print(f"  {_outcome(rows)}", flush=True)
    return 0 if all(row.status == "equal" for row in rows) else 1


def _pipeline(config: Path, source: str) -> list[TableRow]:
    with step("Dagster's location for this configuration"):
        # Imported here because it takes seconds, and the line should appear first.
        from demo.dagster_runs import Runs

        runs = Runs(config)
    _publish(runs, source)
    with step("bootstrap: one snapshot of all tables, while workload and drain continue") as note:
        note(_copied(runs, runs.run(f"{source}_bootstrap")))
    for cycle in range(1, CYCLES + 1):
        with step(f"compaction {cycle} of {CYCLES}") as note:
            note(_compacted(runs, runs.run(f"{source}_compaction")))
        if cycle == 1:
            announced = step("a mass update of 60,000 accounts, which Spark will compact")
            with announced, connect(runs.config.sources[source].dsn) as connection:
                connection.execute(_MASS_UPDATE)
            with step("Spark"):
                runs.start_spark()
        time.sleep(_BETWEEN_CYCLES_S)
    with step("the view revenue_per_product"):
        runs.run("views_refresh")
    with step("proof: every table of PostgreSQL and of the lake, at one position, and each history"):
        rows = runs.prove(source)
    with step("audit: the view's rows and those of its query, which Spark computes again"):
        runs.audit(source)
    return rows


def _publish(runs: Runs, source: str) -> None:
    from lakeproof.commands.publish import apply, plan

    with step("publication, as `lakeproof plan` shows it and `lakeproof apply` runs it"):
        planned = plan(runs.config, source)
        apply(runs.config, source, planned)
    for statement in planned.statements:
        print(f"      {statement}")


def _copied(runs: Runs, result: ExecuteInProcessResult) -> str:
    from assets.support.keys import Layer

    tables = runs.metadata(result, Layer.SNAPSHOT)
    rows = sum(int(str(values["dagster/row_count"])) for values in tables.values())
    positions = {str(values["consistent_point"]) for values in tables.values()}
    return f"{len(tables)} tables, {rows:,} rows, all at {', '.join(sorted(positions))}"


def _compacted(runs: Runs, result: ExecuteInProcessResult) -> str:
    from assets.support.keys import Layer

    tables = runs.metadata(result, Layer.CURRENT)
    changes = sum(int(str(values["changes"])) for values in tables.values())
    positions = {str(values["compacted_through_lsn"]) for values in tables.values()}
    by_spark = [str(table) for table, values in tables.items() if str(values["written_by"]).startswith("spark")]
    cut = f"{changes:,} changes, cut at {', '.join(sorted(positions)) or 'no new position'}"
    return f"{cut}; by Spark: {', '.join(by_spark) or 'no table'}"


def _word(status: str) -> str:
    return "yes" if status == "equal" else status


def _outcome(rows: Sequence[TableRow]) -> str:
    unequal = [str(row.table) for row in rows if row.status != "equal"]
    if unequal:
        return f"NOT proved equal: {', '.join(unequal)}"
    return f"All {len(rows)} tables are equal, value by value, at one position"


if __name__ == "__main__":
    sys.exit(main())
