"""Proofs that no check of Dagster's made, but a command or a compaction, as the events that their assets lack: each once.

The words of an outcome are in `assets.checks.outcomes`. The lake's record of proofs has every target's last one with its
time, and so has each evaluation in Dagster: what the record has later is not in Dagster. A run that is about to evaluate a
check reports its own proof, so the check waits for the run's end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import dagster as dg
from dagster import DagsterInstance

from assets.checks.outcomes import RECORDED_AT, ProofOutcome, recorded_history, recorded_table, recorded_view
from assets.checks.proof import (
    CHECK,
    HISTORY_CHECK,
    ProofTargets,
    evaluation,
    proof_check_result,
    proof_event,
    proof_targets,
)
from lakeproof.config.model import Config, SourceConfig
from lakeproof.errors import LakeproofError
from lakeproof.proof.record import ProofRecord, read_record
from lakeproof.storage.times import time_of
from orchestration.alerts import newest_evaluation
from resources import Settings

# Proofs of one tick: an event takes some milliseconds, and a tick must end within 60 s.
PROOFS_MAX = 100

# Proofs of changes come every two minutes and most often say that nothing is new: of a table's, one in so many seconds is an
# event, and of many tables' as many as this leaves to each. Dagster keeps events for ever.
_CHANGED_S, _CHANGED_S_PER_TABLE = 240.0, 30.0

AssetEvent: TypeAlias = dg.AssetMaterialization | dg.AssetCheckEvaluation


@dataclass(frozen=True, slots=True)
class _Recorded:
    """One target's entry in the lake's record: its time, its process, and what to show of it.

    `waits_s`: it is shown if it is so much later than what Dagster has.
    """

    time: str
    by: str
    outcome: Callable[[], ProofOutcome]
    waits_s: float = 0.0


@dataclass(frozen=True, slots=True)
class OutsideProofs:
    """The proofs of one source, made by whom they may; at `most` so many are reported at once."""

    source: str
    targets: ProofTargets
    most: int = PROOFS_MAX

    @classmethod
    def of(cls, config: Config, source: SourceConfig) -> OutsideProofs:
        """Return the proofs that a source's assets show."""
        return cls(source.name, proof_targets(config, source))

    def unreported(self, instance: DagsterInstance, settings: Settings, newest: str) -> tuple[list[AssetEvent], str]:
        """Return the events of proofs that Dagster does not have, and the recorded time up to which it then has all.

        `newest` is that time as the last tick left it; if it is empty, all of the record is compared with Dagster's events.
        """
        try:
            proofs = read_record(settings.lake_of(self.source))
        except LakeproofError:
            return [], newest
        recorded = {c: each for c, each in self._recorded(proofs) if each.by and each.time > newest}
        if not recorded:
            return [], newest
        # The instance's own method asks for one check at a time.
        executions = instance.event_log_storage.get_latest_asset_check_execution_by_key(list(recorded))
        events: list[AssetEvent] = []
        reported, waits = 0, False
        runs: dict[str, bool] = {}
        for check, each in sorted(recorded.items(), key=lambda item: item[1].time):
            execution = executions.get(check)
            if execution is not None and _is_at_work(instance, execution, runs):
                waits = True
            elif time_of(each.time).timestamp() - _reported_at(instance, check, execution) > each.waits_s:
                if reported == self.most:
                    # The next tick goes on with what Dagster does not have by then.
                    return events, newest
                reported += 1
                events += _events(check, each)
        return events, newest if waits else max(each.time for each in recorded.values())

    def _recorded(self, proofs: ProofRecord) -> Iterator[tuple[dg.AssetCheckKey, _Recorded]]:
        for key, table in self.targets.tables.items():
            if (proved := proofs.tables.get(table)) is not None:
                outcome, waits_s = partial(recorded_table, self.source, table, proved), 0.0
                if proved.status == "equal" and proved.verified is not None and proved.verified.kind == "changed":
                    waits_s = max(_CHANGED_S, _CHANGED_S_PER_TABLE * len(self.targets.tables))
                yield dg.AssetCheckKey(key, CHECK), _Recorded(proved.time, proved.by, outcome, waits_s)
        for key, table in self.targets.histories.items():
            if (proved := proofs.tables.get(table)) is not None and (last := proved.history) is not None:
                outcome = partial(recorded_history, last)
                yield dg.AssetCheckKey(key, HISTORY_CHECK), _Recorded(last.time, last.by, outcome)
        for key, view in self.targets.views.items():
            if (last := proofs.views.get(view)) is not None:
                yield dg.AssetCheckKey(key, CHECK), _Recorded(last.time, last.by, partial(recorded_view, last))


def _is_at_work(instance: DagsterInstance, execution: Any, runs: dict[str, bool]) -> bool:
    """True if a run has yet to evaluate the check; `runs` has the answers of this look."""
    # The class of an execution has no public name, nor have its states.
    if execution.status.value != "PLANNED":
        return False
    run_id = execution.run_id
    if run_id not in runs:
        run = instance.get_run_by_id(run_id)
        runs[run_id] = run is not None and not run.is_finished
    return runs[run_id]


def _reported_at(instance: DagsterInstance, check: dg.AssetCheckKey, execution: Any) -> float:
    """Return the recorded time of the proof that Dagster has; that of a check that was never evaluated is before all."""
    shown = None if execution is None else newest_evaluation(instance, check, execution)
    value = None if shown is None else shown.metadata.get(RECORDED_AT)
    return value.value if isinstance(value, dg.TimestampMetadataValue) else float("-inf")


def _events(check: dg.AssetCheckKey, recorded: _Recorded) -> Iterator[AssetEvent]:
    """Yield the materialization of a comparison, and the check's evaluation of any proof."""
    outcome = recorded.outcome()
    by = f"proved by {recorded.by}"
    outcome = replace(outcome, reason=f"{outcome.reason}; {by}" if outcome.reason else by)
    if outcome.compared:
        yield proof_event(check.asset_key, outcome)
    yield evaluation(proof_check_result(check, outcome))
