"""One step that makes many assets: what `dagster.multi_asset` gives, at a cost that thousands of tables can bear.

That repeats in its op what each asset is, and has an input for each asset that one depends on. Dagster looks at all of it in
each job, and writes it into the database with every run. Here the op has what orders and ends a step, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg


@dataclass(frozen=True, slots=True)
class StepRun:
    """How Dagster runs a step: all of its assets or any, partitions in how many runs, in which pool, with which tags."""

    can_subset: bool = False
    backfill_policy: dg.BackfillPolicy | None = None
    pool: str | None = None
    tags: Mapping[str, str] | None = None


def asset_step(
    name: str,
    specs: Sequence[dg.AssetSpec],
    run: StepRun = StepRun(),
    *,
    after: Iterable[dg.AssetKey] | None = None,
    checks: Iterable[dg.AssetCheckSpec] = (),
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """Return a decorator for the function that makes these assets and evaluates the `checks`.

    It waits for the steps that make the assets `after`, by default all that the specs depend on. Of assets that one step
    makes, and that no run selects alone, one is enough; an asset without a step needs none.
    """
    by_output = {spec.key.to_python_identifier(): spec.key for spec in specs}
    by_check = {check.get_python_identifier(): check for check in checks}
    before = [dep.asset_key for spec in specs for dep in spec.deps] if after is None else after
    by_input = {key.to_python_identifier(): key for key in before}
    asset, check = dg.Out(dg.Nothing, is_required=False), dg.Out(is_required=not run.can_subset)

    def step(compute: Callable[..., Any]) -> dg.AssetsDefinition:
        op = dg.op(
            name=name,
            ins=dict.fromkeys(by_input, dg.In(dg.Nothing)),
            out={**dict.fromkeys(by_output, asset), **dict.fromkeys(by_check, check)},
            pool=run.pool,
            tags=run.tags,
        )
        return dg.AssetsDefinition(
            specs=specs,
            node_def=op(compute),
            keys_by_input_name=by_input,
            keys_by_output_name=by_output,
            check_specs_by_output_name=by_check,
            can_subset=run.can_subset,
            backfill_policy=run.backfill_policy,
        )

    return step
