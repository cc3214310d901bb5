"""The proof as an asset check on every current table: equal to PostgreSQL at one and the same position, or not.

Comparing belongs to `wal2delta.pipeline.prove`. Differing keys stay in the engine's report: they are values of rows.
"""

from collections.abc import Iterator

import dagster as dg

from assets import metadata as md
from assets.keys import Layer, table_key
from assets.stopping import call_in_turn
from assets.telling import to_run_log
from resources import LakeSpark, Settings
from wal2delta.config.model import SourceConfig
from wal2delta.lsn import Lsn
from wal2delta.names import TableName
from wal2delta.pipeline.prove import prove
from wal2delta.proof.result import TableProof

CHECK = "proved_equal"


def proof_check(source: SourceConfig) -> dg.AssetChecksDefinition:
    """One check per current table of a source; whichever are selected are proved under one snapshot."""
    tables = {dg.AssetCheckKey(table_key(Layer.CURRENT, source.name, t), CHECK): t for t in source.tables}

    @dg.multi_asset_check(
        name=f"prove_{source.name}",
        specs=[dg.AssetCheckSpec(key.name, asset=key.asset_key, description=_DESCRIPTION) for key in tables],
        can_subset=True,
    )
    def check(
        context: dg.AssetCheckExecutionContext, settings: Settings, lake_spark: LakeSpark
    ) -> Iterator[dg.AssetCheckResult]:
        chosen = [table for key, table in tables.items() if key in context.selected_asset_check_keys]
        report = to_run_log(context.log.info)
        proof = call_in_turn(
            lambda stop: prove(settings.config(), source.name, chosen, lake_spark.session, report, stop)
        )
        for table in chosen:
            yield result(source.name, table, proof.position, proof.tables.get(table))

    return check


_DESCRIPTION = (
    "Every row of the source and of the lake, compared by checksums at one LSN. A failure of severity ERROR is a "
    "difference; of severity WARN, the comparison could not be made: nothing is known then."
)


def result(source: str, table: TableName, position: Lsn | None, proof: TableProof | None) -> dg.AssetCheckResult:
    """What the UI shows of one table's proof; `proof` is None where the engine did not reach the table."""
    status = proof.status if proof else "blocked"
    verified = status in ("equal", "differs")
    return dg.AssetCheckResult(
        asset_key=table_key(Layer.CURRENT, source, table),
        check_name=CHECK,
        passed=status == "equal",
        severity=dg.AssetCheckSeverity.ERROR if verified else dg.AssetCheckSeverity.WARN,
        description=(proof.reason if proof else "the proof ended before this table") or None,
        metadata=md.merged(
            {"status": status},
            md.lsns(verified_through_lsn=position if status == "equal" else None),
            md.lsns(compared_at_lsn=position if verified else None),
            md.known(
                source_rows=proof.source_rows if proof else None,
                lake_rows=proof.lake_rows if proof else None,
                differing_buckets=proof.differing_buckets if proof and verified else None,
            ),
        ),
    )
