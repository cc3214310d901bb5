"""Proves that the lake holds what the source holds, and what it should hold by itself; repairs what differs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakeproof.config.mistakes import table_hint
from lakeproof.config.model import Config
from lakeproof.config.view_graph import readers_of
from lakeproof.errors import ConfigError, SourceError, StuckError, TableError
from lakeproof.events import Event, RunControl, counted
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.spark.driver import at_work
from lakeproof.lake.spark.failures import without_java
from lakeproof.lake.spark_on_demand import AnySpark, SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.keys_to_repair import KeysToRepair
from lakeproof.proof.lake.by_itself import LakePart, LakeScope, prove_lake
from lakeproof.proof.record import one_proof, record
from lakeproof.proof.repair import Repair
from lakeproof.proof.result import LakeProof, ProofReport
from lakeproof.proof.run import ProofRequest, Proving, prove_once
from lakeproof.snapshot.run import SnapshotIncompleteError, copy_tables
from lakeproof.state.known_tables import with_known_tables
from lakeproof.storage.source_lake import SourceLake


@without_java(lambda _config, name, *_, **__: name)
def prove(  # noqa: PLR0917  the same order in every step of the pipeline
    config: Config,
    name: str,
    tables: Sequence[TableName] | None,
    spark: AnySpark,
    control: RunControl | None = None,
    request: ProofRequest | None = None,
) -> ProofReport:
    """Compare `tables` (None: all that are published or in the lake) of the source `name` with the lake.

    Then prove histories of these tables and audit views: those that are due, or all with `history`, or just `part`. With
    `repair` the rows that differ are read again, by their keys or with their whole table (`proof.repair`), entered as a
    correction, and the tables proved once more. Raises ConfigError for an unknown name or a table that is neither published
    nor in the lake, LakeError if there is no landing, TransientError if another process holds the lease or the source can't
    be reached, else what `drain` and `compact` raise.
    """
    control, request = control or RunControl(), request or ProofRequest()
    _check_part(config, name, request.part)
    to_repair: dict[TableName, KeysToRepair] | None = {} if request.repair else None
    once = partial(prove_once, config, name, tables, SparkOnDemand.of(spark), control)
    proof = once(Proving(request, to_repair))
    wrong = proof.with_status("differs")
    if to_repair is None or not wrong or control.stop.requested:
        return proof
    repair = Repair.of(wrong, to_repair)
    if repair.keys:
        control.report(repair.event)
    _copy_whole(config, name, repair, control)
    proof = once(Proving(request, repair=repair))
    repair.whole = repair.left_over(proof, newest_cut(SourceLake.open(config.location, name)))
    if repair.whole and not control.stop.requested:
        _copy_whole(config, name, repair, control)
        proof = once(Proving(request))
    return repair.described_in(proof)


def _check_part(config: Config, name: str, part: LakePart | None) -> None:
    """Raise ConfigError for a part that is not of the source: nothing would be compared, and nothing differ."""
    if part is None:
        return
    cut = newest_cut(SourceLake.open(config.location, name))
    existing = {*with_known_tables(config, name).tables, *(() if cut is None else cut.tables)}
    readers = {view.name for view in readers_of(config.views, [name])}
    for table in part.histories:
        if table not in existing:
            remedy = table_hint(table, existing, f"name a table of {name}")
            raise ConfigError(f"table {table}", f"source {name} does not have it", remedy)
    for view in part.views:
        if view not in readers:
            raise ConfigError(f"view {view}", f"it does not read source {name}", "prove it with a source that it reads")


def _copy_whole(config: Config, name: str, repair: Repair, control: RunControl) -> None:
    """Copy the tables of a repair that are not read by keys."""
    if not repair.whole:
        return
    message = f"copying {counted(len(repair.whole), 'differing table')} again"
    reasons = {table.key: why for table, why in repair.whole.items()}
    control.report(Event("prove.repair", message, {"tables": list(reasons), "reasons": reasons}))
    _copy_together(config, name, list(repair.whole), repair, control)
    repair.whole.clear()


def _copy_together(config: Config, name: str, tables: Sequence[TableName], repair: Repair, control: RunControl) -> None:
    """Copy tables; what is refused for one of them keeps no other from its repair."""
    try:
        repair.copied(copy_tables(config, name, tables, control.report, control.stop))
    except SnapshotIncompleteError as error:
        repair.copied(error.report)
    except StuckError:
        raise
    except (ConfigError, SourceError, TableError) as error:
        if len(tables) == 1:
            repair.refused(tables[0], str(error))
            return
        for table in tables:
            _copy_together(config, name, [table], repair, control)


@without_java(lambda _config, name, *_, **__: name)
def prove_in_lake(
    config: Config, name: str, part: LakePart, spark: AnySpark, control: RunControl | None = None
) -> LakeProof | None:
    """Prove `part` alone at the newest cut, without the source; None if the lake has no cut.

    Raises ConfigError for a table that the source does not have and a view that does not read it, TransientError if another
    process proves or maintains this source.
    """
    _check_part(config, name, part)
    source_lake, on_demand = SourceLake.open(config.location, name), SparkOnDemand.of(spark)
    with at_work(on_demand, config.location), one_proof(source_lake):
        cut = newest_cut(source_lake)
        if cut is None:
            return None
        lake = prove_lake(config, on_demand, control or RunControl(), source_lake, LakeScope(part=part), cut=cut)
        record(source_lake, cut.incarnation, ProofReport(name, None, {}, lake))
    return lake
