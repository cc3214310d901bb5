"""A step of many assets: what it waits for, what of it a run may choose, and the days of a range in one run."""

from collections.abc import Iterator

import dagster as dg

from assets.support.step import StepRun, asset_step

A, B, C, D = (dg.AssetKey(["layer", name]) for name in ("a", "b", "c", "d-2Dx"))
_DAYS = dg.DailyPartitionsDefinition("2026-01-01")


def _first(*, fails: bool) -> dg.AssetsDefinition:
    @asset_step("first", [dg.AssetSpec(key, skippable=True, description="rows") for key in (A, B)])
    def first() -> Iterator[dg.MaterializeResult[None]]:
        if fails:
            raise dg.Failure("no lake")
        yield dg.MaterializeResult(asset_key=A)
        yield dg.MaterializeResult(asset_key=B)

    return first


def _second() -> dg.AssetsDefinition:
    specs = [dg.AssetSpec(key, deps=[A, B], skippable=True, partitions_def=_DAYS) for key in (C, D)]

    @asset_step(
        "second",
        specs,
        StepRun(can_subset=True, backfill_policy=dg.BackfillPolicy.single_run()),
        after=[A],
        checks=[dg.AssetCheckSpec("adds_up", asset=key) for key in (C, D)],
    )
    def second(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[None] | dg.AssetCheckResult]:
        assert len(context.partition_keys) == 3
        for key in context.selected_asset_keys:
            yield dg.MaterializeResult(asset_key=key)
        for check in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(asset_key=check.asset_key, check_name=check.name, passed=True)

    return second


def _run(*keys: dg.AssetKey, fails: bool = False) -> dg.ExecuteInProcessResult:
    job = dg.define_asset_job("job", selection=list(keys))
    defs = dg.Definitions(assets=[_first(fails=fails), _second()], jobs=[job])
    tags = {"dagster/asset_partition_range_start": "2026-01-01", "dagster/asset_partition_range_end": "2026-01-03"}
    return defs.resolve_job_def("job").execute_in_process(tags=tags, raise_on_error=False)


def test_a_step_waits_for_one_asset_of_another_and_is_skipped_if_that_failed() -> None:
    """Lineage has every asset; the order needs one."""
    graph = dg.Definitions(assets=[_first(fails=False), _second()]).resolve_asset_graph()
    assert graph.get(D).parent_keys == {A, B}
    assert graph.get(A).description == "rows"
    done = _run(A, B, C, D)
    assert [event.step_key for event in done.get_step_success_events()] == ["first", "second"]
    failed = _run(A, B, C, D, fails=True)
    assert not failed.success
    assert [event.step_key for event in failed.get_step_success_events()] == []


def test_a_run_of_some_assets_makes_and_checks_these_alone_for_all_days_of_a_range() -> None:
    """An asset that is not selected has neither an event nor a result."""
    done = _run(D)
    assert done.success
    events = done.get_asset_materialization_events()
    assert {(event.asset_key, event.partition) for event in events} == {(D, f"2026-01-0{day}") for day in (1, 2, 3)}
    assert [check.asset_key for check in done.get_asset_check_evaluations()] == [D]
