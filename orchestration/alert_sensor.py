"""The sensor that notifies people of problems, and of their end: one for the whole location, if `alerts` names a way.

What is wrong is in `problems.py`, which messages are sent in `policies.alert`, how in `resources.messages`.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

import dagster as dg

from lakeproof.config.model import Config
from lakeproof.errors import LakeproofError
from orchestration.policies import alert as alert_policy
from orchestration.policies.alert import Limits, Memory, Message, Problem
from orchestration.problems import FailedRuns, chosen, failed_checks, failed_runs, held_tables, stale_assets
from orchestration.start import Start
from resources import Settings
from resources.messages import Line, Way, ways

NAME = "alert_sensor"
_INTERVAL_S = 28
# A cursor is a text in Dagster's database.
_PROBLEMS_MAX = 500
# Requests of one tick by each way: a tick ends within 60 s, also if nobody answers.
_REQUESTS_MAX = 3
_ON = Start()


@dataclass(frozen=True, slots=True)
class Watched:
    """The names of what the sensor looks at in Dagster."""

    jobs: frozenset[str]
    checks: tuple[dg.AssetCheckKey, ...]
    assets: tuple[dg.AssetKey, ...]
    sources: tuple[str, ...]


def watched(config: Config, jobs: Sequence[str], assets: Sequence[dg.AssetsDefinition]) -> Watched:
    """Return what belongs to the location of a configuration."""
    return Watched(
        frozenset(jobs),
        tuple(check for asset in assets for check in asset.check_keys),
        tuple(spec.key for asset in assets for spec in asset.specs if spec.freshness_policy is not None),
        tuple(source.name for source in config.sources.values() if source.tables),
    )


def alert_sensor(
    config: Config, names: Watched, clock: Callable[[], float] = time.time, start: Start = _ON, name: str = NAME
) -> list[dg.SensorDefinition]:
    """Return the sensor, none if nobody is to be notified."""
    if not config.alerts.is_on:
        return []

    @dg.sensor(
        name=name,
        minimum_interval_seconds=_INTERVAL_S,
        default_status=start.sensor,
        description=(
            "Notifies people, by the ways that `alerts` names, of failed runs, held tables, slots, proofs, expectations and "
            "assets that are too old: once, again while it lasts, and when it is over."
        ),
    )
    def sensor(context: dg.SensorEvaluationContext, settings: Settings) -> dg.SensorResult:
        alerts, now = settings.config().alerts, clock()
        state = _State.from_cursor(context.cursor, now)
        runs = failed_runs(context.instance, names.jobs, state.runs, now)
        every = [
            *runs.problems(),
            *failed_checks(context.instance, names.checks),
            *stale_assets(context.instance, names.assets),
            *_held(settings, names.sources, context.log),
        ]
        problems = sorted(chosen(every, alerts), key=lambda problem: (problem.severity, problem.key))[:_PROBLEMS_MAX]
        limits = Limits(alerts.repeat_s, alerts.per_hour)
        memories: dict[str, Memory] = {}
        for way in ways(alerts):
            before = state.memories.get(way.name, Memory())
            sending = _Sending(way, limits, alerts.ui or "", context.log)
            memories[way.name] = sending.tell(before, problems, now)
        reason = f"{len(problems)} known problems" if problems else "nothing is wrong"
        return dg.SensorResult(skip_reason=reason, cursor=_State(memories, runs).to_cursor())

    return [sensor]


def _held(settings: Settings, sources: Sequence[str], log: logging.Logger) -> list[Problem]:
    problems: list[Problem] = []
    for source in sources:
        try:
            problems += held_tables(settings, [source])
        except (LakeproofError, OSError) as error:
            log.warning("the lake of %s can't be read: %s", source, error)
    return problems


@dataclass(frozen=True, slots=True)
class _State:
    """State that one tick passes to the next: the memory of each way, and the failed runs."""

    memories: Mapping[str, Memory]
    runs: FailedRuns

    def to_cursor(self) -> str:
        runs = {job: list(failed) for job, failed in self.runs.runs.items()}
        return alert_policy.cursor(self.memories, runs=runs, looked=self.runs.looked)

    @classmethod
    def from_cursor(cls, text: str | None, now: float) -> _State:
        """Read a cursor; without one, or with that of another version of this file, runs count from now on."""
        try:
            document = json.loads(text or "{}")
            memories = {str(way): Memory.from_json(memory) for way, memory in document["ways"].items()}
            runs = {str(job): (str(run), str(reason)) for job, (run, reason) in document["runs"].items()}
            return cls(memories, FailedRuns(runs, float(document["looked"])))
        except (ValueError, LookupError, TypeError, AttributeError):
            return cls({}, FailedRuns({}, now))


@dataclass(frozen=True, slots=True)
class _Sending:
    """One way of notifying people, in one tick."""

    way: Way
    limits: Limits
    ui: str
    log: logging.Logger

    def tell(self, memory: Memory, problems: Sequence[Problem], now: float) -> Memory:
        """Send what is due and return the memory after it; what fails is due again at the next tick."""
        memory = alert_policy.look(memory, problems, now)
        messages = alert_policy.due(memory, problems, now, self.limits)
        requests = min(alert_policy.room(memory, self.limits), _REQUESTS_MAX)
        for _ in range(requests):
            part, messages = messages[: self.way.takes], messages[self.way.takes :]
            if not part:
                break
            try:
                self.way.send([self._line(message) for message in part])
            except LakeproofError as error:
                self.log.warning("%d messages were not sent: %s", len(part), error)
                break
            memory = alert_policy.sent(memory, part, now)
        return memory

    def _line(self, message: Message) -> Line:
        problem = message.problem
        url = self.ui.rstrip("/") + problem.path if self.ui and problem.path else ""
        since = datetime.fromtimestamp(message.since, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
        return Line(message.event, problem.key, problem.kind, problem.severity, problem.title, problem.text, since, url)
