"""The location as written: every asset, group, dependency, check, job, sensor and schedule of a sample configuration."""

from __future__ import annotations

import logging
from pathlib import Path

import dagster as dg
import pytest
from dagster._config.pythonic_config.resource import get_resource_type_name

from lakeproof.config.load import load
from lakeproof.errors import ConfigError
from lakeproof.names import TableName
from orchestration.build import build
from orchestration.location import location
from tests.support.shell.days import today_with
from tests.support.shell.sample import write_sample


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample's file."""
    return write_sample(tmp_path_factory.mktemp("sample"))


@pytest.fixture(scope="module")
def defs(path: Path) -> dg.Definitions:
    """The sample's location, validated as Dagster does when it loads it."""
    result = location(path)
    dg.Definitions.validate_loadable(result)
    return result


def _key(text: str) -> dg.AssetKey:
    return dg.AssetKey(text.split("/"))


_LINEAGE = {
    "postgres/shop/shop/orders": [],
    "postgres/shop/shop/order-20lines": [],
    "postgres/crm/public/customers": [],
    "snapshot/shop/shop/orders": ["postgres/shop/shop/orders"],
    "snapshot/shop/shop/order-20lines": ["postgres/shop/shop/order-20lines"],
    "snapshot/crm/public/customers": ["postgres/crm/public/customers"],
    "changes/shop/shop/orders": ["postgres/shop/shop/orders", "slots/shop"],
    "changes/shop/shop/order-20lines": ["postgres/shop/shop/order-20lines", "slots/shop"],
    "changes/crm/public/customers": ["postgres/crm/public/customers", "slots/crm"],
    "history/shop/shop/orders": ["changes/shop/shop/orders", "snapshot/shop/shop/orders"],
    "history/shop/shop/order-20lines": ["changes/shop/shop/order-20lines", "snapshot/shop/shop/order-20lines"],
    "history/crm/public/customers": ["changes/crm/public/customers", "snapshot/crm/public/customers"],
    "current/shop/shop/orders": ["changes/shop/shop/orders", "snapshot/shop/shop/orders"],
    "current/shop/shop/order-20lines": ["changes/shop/shop/order-20lines", "snapshot/shop/shop/order-20lines"],
    "current/crm/public/customers": ["changes/crm/public/customers", "snapshot/crm/public/customers"],
    "daily/shop/shop/orders": ["history/shop/shop/orders"],
    "slots/shop": [],
    "postgres/unlisted": [],
    "maintenance/shop": [],
    "maintenance/crm": [],
    "slots/crm": [],
    "views/per_customer": ["current/crm/public/customers", "current/shop/shop/orders"],
    "views/copy": ["current/shop/shop/orders"],
    "proof/current/shop/shop/orders": ["current/shop/shop/orders"],
    "proof/history/shop/shop/orders": ["history/shop/shop/orders"],
    "proof/current/shop/shop/order-20lines": ["current/shop/shop/order-20lines"],
    "proof/history/shop/shop/order-20lines": ["history/shop/shop/order-20lines"],
    "proof/current/crm/public/customers": ["current/crm/public/customers"],
    "proof/history/crm/public/customers": ["history/crm/public/customers"],
    "proof/views/per_customer": ["views/per_customer"],
    "proof/views/copy": ["views/copy"],
    "expectations/shop/shop/orders": ["current/shop/shop/orders"],
}

_JOBS = {
    "shop_bootstrap": (["snapshot_shop"], ["snapshot/shop/shop/order-20lines", "snapshot/shop/shop/orders"]),
    "shop_drain": (["drain_shop"], ["changes/shop/shop/order-20lines", "changes/shop/shop/orders"]),
    "shop_compaction": (
        ["compact_shop"],
        [
            "current/shop/shop/order-20lines",
            "current/shop/shop/orders",
            "history/shop/shop/order-20lines",
            "history/shop/shop/orders",
        ],
    ),
    "shop_slot": (["slots__shop"], ["slots/shop"]),
    "shop_maintenance": (["maintenance__shop"], ["maintenance/shop"]),
    "crm_maintenance": (["maintenance__crm"], ["maintenance/crm"]),
    "crm_slot": (["slots__crm"], ["slots/crm"]),
    "shop_verification": (
        ["expect_shop", "prove_shop"],
        [
            "expectations/shop/shop/orders",
            "proof/current/shop/shop/order-20lines",
            "proof/current/shop/shop/orders",
            "proof/history/shop/shop/order-20lines",
            "proof/history/shop/shop/orders",
            "proof/views/copy",
        ],
    ),
    "crm_bootstrap": (["snapshot_crm"], ["snapshot/crm/public/customers"]),
    "crm_drain": (["drain_crm"], ["changes/crm/public/customers"]),
    "crm_compaction": (
        ["compact_crm"],
        ["current/crm/public/customers", "history/crm/public/customers"],
    ),
    # A view of several sources is audited by the proofs of one.
    "crm_verification": (
        ["prove_crm"],
        [
            "proof/current/crm/public/customers",
            "proof/history/crm/public/customers",
            "proof/views/per_customer",
        ],
    ),
    "shop_daily": (["daily_shop"], ["daily/shop/shop/orders"]),
    # Without assets: a person launches them, with a configuration.
    **{
        f"{source}_{kind}": ([f"{kind}_{source}"], [])
        for source in ("shop", "crm")
        for kind in ("rebuild", "recover", "teardown", "pause", "resume")
    },
    "views_replace": (["replace_view"], []),
    "views_take_back": (["take_view_back"], []),
    "views_refresh": (["views__copy", "views__per_customer"], ["views/copy", "views/per_customer"]),
}


def test_the_lineage_is_exactly_this(defs: dg.Definitions) -> None:
    """Every table has one asset per layer, and each asset hangs on what it is made from."""
    graph = defs.resolve_asset_graph()
    actual = {
        key.to_user_string(): sorted(parent.to_user_string() for parent in graph.get(key).parent_keys)
        for key in graph.get_all_asset_keys()
    }
    assert actual == _LINEAGE


def test_each_layer_of_a_source_is_a_group(defs: dg.Definitions) -> None:
    """Groups are what the lineage page shows first: two sources do not mix, and a slot is shown with its server."""
    graph = defs.resolve_asset_graph()
    groups = {key.to_user_string(): graph.get(key).group_name for key in graph.get_all_asset_keys()}
    assert groups.pop("slots/shop") == "shop_postgres"
    assert groups["current/shop/shop/orders"] == "shop_current"
    assert groups["proof/history/crm/public/customers"] == "crm_proof"
    assert (groups["views/copy"], groups["proof/views/copy"]) == ("views", "views_proof")
    assert groups["daily/shop/shop/orders"] == "shop_daily"
    assert len(set(groups.values())) == 19


def test_tags_select_a_source_a_layer_and_a_schema(defs: dg.Definitions) -> None:
    """Two hundred tables are found by `tag:lakeproof/schema=…`."""
    graph = defs.resolve_asset_graph()
    tags = {name: graph.get(_key(name)).tags for name in ("history/shop/shop/orders", "views/copy", "slots/crm")}
    assert {k: v for k, v in tags["history/shop/shop/orders"].items() if "lakeproof" in k} == {
        "lakeproof/source": "shop",
        "lakeproof/layer": "history",
        "lakeproof/schema": "shop",
    }
    assert tags["views/copy"]["lakeproof/layer"] == "views"
    assert tags["slots/crm"]["lakeproof/source"] == "crm"


def test_every_asset_says_what_it_is_where_it_lies_and_of_what_kind(defs: dg.Definitions) -> None:
    """The overview page of no asset is empty."""
    graph = defs.resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        assert node.description
        assert node.kinds
        assert node.metadata["lakeproof_version"]
        assert "dagster/code_references" in node.metadata
        if key.path[0] != "slots" and len(key.path) > 2:
            assert "dagster/table_name" in node.metadata
            assert key.path[0] == "postgres" or str(node.metadata["dagster/uri"]).startswith("file:///")


def test_what_is_judged_elsewhere_links_there(defs: dg.Definitions) -> None:
    """The page of a current table shows no check: its proof and its expectations are one click away."""
    graph = defs.resolve_asset_graph()

    def linked(*key: str) -> dict[str, str]:
        metadata = graph.get(dg.AssetKey(list(key))).metadata
        links = {name: metadata[name] for name in ("proof", "expectations") if name in metadata}
        return {
            name: link.asset_key.to_user_string()
            for name, link in links.items()
            if isinstance(link, dg.DagsterAssetMetadataValue)
        }

    orders = "shop/shop/orders"
    assert linked("current", "shop", "shop", "orders") == {
        "proof": f"proof/current/{orders}", "expectations": f"expectations/{orders}"
    }  # fmt: skip
    assert linked("current", "crm", "public", "customers") == {"proof": "proof/current/crm/public/customers"}
    assert linked("history", "shop", "shop", "orders") == {"proof": f"proof/history/{orders}"}
    assert linked("views", "copy") == {"proof": "proof/views/copy"}
    assert linked("changes", "shop", "shop", "orders") == {}


def test_owners_and_descriptions_come_from_the_configuration(defs: dg.Definitions) -> None:
    """A person's words about a table stand on each of its assets."""
    node = defs.resolve_asset_graph().get(_key("current/shop/shop/orders"))
    assert list(node.owners) == ["team:shop"]
    assert "One row per order." in (node.description or "")
    assert list(defs.resolve_asset_graph().get(_key("slots/crm")).owners) == ["team:crm"]


def test_what_computes_has_a_code_version(path: Path, defs: dg.Definitions) -> None:
    """Compaction's is ours to raise, a view's is its SQL."""
    graph = defs.resolve_asset_graph()
    assert graph.get(_key("history/shop/shop/orders")).code_version == "1"
    before = graph.get(_key("views/copy")).code_version
    sql = path.parent / "q.sql"
    text = sql.read_text(encoding="utf-8")
    sql.write_text("SELECT 1 FROM o\n", encoding="utf-8")
    changed = location(path).resolve_asset_graph().get(_key("views/copy")).code_version
    sql.write_text(text, encoding="utf-8")
    assert before
    assert changed != before


def test_the_checks_are_exactly_these(defs: dg.Definitions) -> None:
    """A proof of every current table, history and view, on what nothing but a proof materializes; slots, expectations."""
    orders = "expectations/shop/shop/orders"
    assert {(k.asset_key.to_user_string(), k.name) for k in defs.resolve_asset_graph().asset_check_keys} == {
        ("slots/shop", "slot_health"),
        ("slots/shop", "lake_is_whole"),
        ("daily/shop/shop/orders", "adds_up"),
        ("slots/crm", "slot_health"),
        ("slots/crm", "lake_is_whole"),
        ("proof/history/shop/shop/orders", "proved_intact"),
        ("proof/history/shop/shop/order-20lines", "proved_intact"),
        ("proof/history/crm/public/customers", "proved_intact"),
        ("proof/current/shop/shop/orders", "proved_equal"),
        ("proof/current/shop/shop/order-20lines", "proved_equal"),
        ("proof/current/crm/public/customers", "proved_equal"),
        ("proof/views/per_customer", "proved_equal"),
        ("proof/views/copy", "proved_equal"),
        (orders, "expect_column_values_to_be_unique__id"),
        (orders, "expect_column_values_to_be_unique__id_2"),
        (orders, "expect_compound_columns_to_be_unique__id__a_b"),
    }


def test_the_jobs_select_exactly_this_and_run_in_one_process(defs: dg.Definitions) -> None:
    """A drain job holds the drain alone."""
    actual = {}
    for declared in defs.jobs or []:
        job = defs.resolve_job_def(declared.name)
        keys = sorted(key.to_user_string() for key in job.asset_layer.selected_asset_keys)
        actual[job.name] = (sorted(node.name for node in job.nodes), keys)
        assert job.executor_def.name == "in_process"
    assert actual == _JOBS


def test_days_are_partitions_of_which_a_range_is_one_run(defs: dg.Definitions) -> None:
    """Today is among them; a source without a landing has no other."""
    today = today_with(minutes=1)
    node = defs.resolve_asset_graph().get(_key("daily/shop/shop/orders"))
    assert node.partitions_def is not None
    assert node.partitions_def.get_partition_keys() == [today.isoformat()]
    assert node.backfill_policy == dg.BackfillPolicy.single_run()


def test_the_sensors_and_schedules_are_exactly_these_and_run_by_default(defs: dg.Definitions) -> None:
    """Each source drains, compacts and proves itself without anybody switching anything on."""
    sensors = {(s.name, s.minimum_interval_seconds, s.default_status.value) for s in defs.sensors or []}
    expected = ("shop_slot_drain_sensor", "crm_slot_drain_sensor", "crm_compaction_sensor")
    assert sensors == {*((name, 14, "RUNNING") for name in expected), ("old_runs_sensor", 600, "RUNNING")}
    schedules = {}
    for schedule in defs.schedules or []:
        assert isinstance(schedule, dg.ScheduleDefinition)
        assert schedule.default_status.value == "RUNNING"
        schedules[schedule.name] = schedule.cron_schedule
    assert schedules == {
        "shop_compaction_schedule": "*/2 * * * *",
        "shop_maintenance_schedule": "30 2 * * *",
        "crm_maintenance_schedule": "30 2 * * *",
        "shop_slot_schedule": "*/15 * * * *",
        "crm_slot_schedule": "*/15 * * * *",
        "shop_daily_schedule": "10 * * * *",
        "shop_verification_schedule": "0 * * * *",
        "crm_verification_schedule": "0 * * * *",
        "views_refresh_schedule": "*/1 * * * *",
    }


def test_one_more_table_brings_exactly_its_own_assets(path: Path) -> None:
    """Adding a table to the configuration touches no other asset."""
    config = load(path)
    shop = config.sources["shop"]
    more = shop.model_copy(update={"tables": (*shop.tables, TableName("shop", "items"))})
    wider = build(config.model_copy(update={"sources": config.sources | {"shop": more}}))
    added = {k.to_user_string() for k in wider.resolve_asset_graph().get_all_asset_keys()} - _LINEAGE.keys()
    layers = ("postgres", "snapshot", "changes", "history", "current", "proof/history", "proof/current")
    assert added == {f"{layer}/shop/shop/items" for layer in layers}


def test_proofs_can_be_switched_off(path: Path) -> None:
    """`proof_interval: off` leaves the job and takes the schedule."""
    defs = build(load(path).model_copy(update={"proof_interval": "off"}))
    assert not [s.name for s in defs.schedules or [] if "verification" in s.name]
    assert defs.resolve_job_def("shop_verification")


def test_a_source_without_known_tables_is_named_and_says_what_to_do(
    path: Path, defs: dg.Definitions, caplog: pytest.LogCaptureFixture
) -> None:
    """Dagster must know the assets before it may ask a server."""
    with caplog.at_level(logging.WARNING, "lakeproof.dagster"):
        location(path)
    assert "sources.unlisted: which tables are published is not known" in caplog.text
    assert "lakeproof bootstrap" in (defs.resolve_asset_graph().get(_key("postgres/unlisted")).description or "")


def test_without_a_configuration_the_location_is_empty_and_says_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    """A fresh clone comes up in the UI all the same."""
    with caplog.at_level(logging.WARNING, "lakeproof.dagster"):
        result = location(None)
    dg.Definitions.validate_loadable(result)
    assert not result.resolve_asset_graph().get_all_asset_keys()
    assert "LAKEPROOF_CONFIG" in caplog.text


def test_a_configuration_that_is_named_and_missing_is_an_error(tmp_path: Path) -> None:
    """An empty location would hide the mistake."""
    with pytest.raises(ConfigError, match="nowhere"):
        location(tmp_path / "nowhere.yaml")


def test_the_launchpad_can_name_no_other_lake(defs: dg.Definitions) -> None:
    """A run works on the configuration that the location was loaded from."""
    job = defs.resolve_job_def("shop_compaction")
    for resource in ("settings", "compute", "pyspark"):
        with pytest.raises(dg.DagsterInvalidConfigError):
            dg.validate_run_config(
                job, {"resources": {resource: {"config": {"config_path": "/another/lakeproof.yaml"}}}}
            )


def test_a_view_says_what_refreshes_it(tmp_path: Path) -> None:
    """A run that goes on, or a schedule: whichever it is, its page names it."""
    path = write_sample(tmp_path)
    graph = build(load(path)).resolve_asset_graph()
    for name in ("copy", "per_customer"):
        assert "`views_refresh_schedule` refreshes it" in str(graph.get(_key(f"views/{name}")).description)
    path.write_text(
        path.read_text(encoding="utf-8").replace("{mode: scheduled, interval_s: 90}", "{}"), encoding="utf-8"
    )
    graph = build(load(path)).resolve_asset_graph()
    actual = graph.get(_key("views/per_customer"))
    assert "`crm_compaction`" in str(actual.description)
    assert "`shop_compaction`, which `shop_compaction_sensor` keeps going" in str(actual.description)


def test_a_resource_shows_its_type_and_what_it_is(tmp_path: Path) -> None:
    """In the UI's list of resources: the class by its name, and words for people."""
    resources = build(load(write_sample(tmp_path))).resources or {}
    shown = {name: (get_resource_type_name(of), of.description) for name, of in resources.items()}
    assert {name: kind for name, (kind, _) in shown.items()} == {
        "settings": "resources.settings.Settings",
        "compute": "resources.compute.Compute",
        "pyspark": "resources.fixed.LazyPySparkResource",
    }
    assert "The configuration" in shown["settings"][1]
    assert "dagster-pyspark" in shown["compute"][1]


def test_a_proof_of_many_tables_waits_for_few_things(defs: dg.Definitions) -> None:
    """In a run of everything it follows compaction and views; Dagster's work on a step is its inputs times its checks."""
    graph = defs.resolve_implicit_global_asset_job_def().graph
    inputs = {
        node.name: {name: of.get_node_dependencies() for name, of in deps.items()}
        for node, deps in graph.dependencies.items()
    }
    waits_for = {each.node for of in inputs["prove_crm"].values() for each in of}
    assert waits_for == {"compact_crm", "views__per_customer"}
    assert len(inputs["prove_shop"]) == 2, "it has two tables and two histories, and a view"
