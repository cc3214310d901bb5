"""`prove --repair` of tables whose identity or key was altered since they were copied, or while they are repaired."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.commands.prove import prove
from lakeproof.config.load import load
from lakeproof.events import Event, RunControl
from lakeproof.failpoints import watched
from lakeproof.lake.read.arrow.open import read_lake
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.proof.run import ProofRequest
from tests.support.faults.layer_files import Layer, set_value
from tests.support.servers.fix_postgres import Database
from tests.support.servers.typed_commands import Place, place_of

pytestmark = pytest.mark.postgres
_ROWS = "SELECT n, n FROM generate_series(1, 20) n"


@pytest.fixture
def place(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Place:
    """A source's configuration; its tables are a test's."""
    return place_of(database, tmp_path, monkeypatch, capsys)


def _begin(place: Place, tables: str, *ddl: str) -> None:
    place.database.execute(*ddl, f"CREATE PUBLICATION {place.database.name} FOR TABLE {tables}")
    place.configure()
    assert [place.run(command)[0] for command in ("bootstrap", "compact")] == [0, 0]


def _damage(place: Place, *tables: str) -> None:
    for table in tables:
        layer = Layer(load(place.file), table)
        layer.rewrite(set_value(layer, "v", 999))


def _column(place: Place, table: str, column: str) -> list[int]:
    return sorted(read_lake(load(place.file)).table("shop", f"public.{table}").arrow().column(column).to_pylist())


@pytest.mark.parametrize("damaged", ["u", "u b"])
def test_a_table_that_no_copy_takes_keeps_no_other_from_its_repair(place: Place, damaged: str) -> None:
    """Its result says why it was not repaired; a table with a key is read by that, a bag is copied."""
    bags = [
        f"CREATE TABLE {t} (id int, v int); ALTER TABLE {t} REPLICA IDENTITY FULL; INSERT INTO {t} {_ROWS}"
        for t in "ub"
    ]
    keyed = ("CREATE TABLE t (id int PRIMARY KEY, v int)", f"INSERT INTO t {_ROWS}")
    _begin(place, "t, u, b", *bags, *keyed)
    place.database.execute("ALTER TABLE u REPLICA IDENTITY NOTHING")
    _damage(place, "t", *damaged.split())
    status, text = place.run("prove", "shop", "--repair")
    assert status == 1
    assert "public.u: not repaired: " in text
    assert "its replica identity is NOTHING" in text
    place.catch_up()
    assert [_column(place, table, "v") for table in "tb"] == [list(range(1, 21))] * 2
    assert "public.u" in place.lacking()[1]["differing"]
    place.database.execute("ALTER TABLE u REPLICA IDENTITY FULL")
    # Histories of bags that were damaged in current go on to differ (docs/proof.md).
    proved = place.document("prove", "shop", "--repair")[1]["tables"]
    assert {name: proof["status"] for name, proof in proved.items()} == {f"public.{t}": "equal" for t in "tub"}
    assert _column(place, "u", "v") == list(range(1, 21))


@pytest.mark.parametrize(("old", "new"), [("id", "id, code"), ("id", "code")])
def test_another_key_since_the_keys_were_compared(place: Place, no_spark: SparkOnDemand, old: str, new: str) -> None:
    """The rows are not looked for by values of other columns; no cut lacks one of them."""
    _begin(
        place,
        "t",
        f"CREATE TABLE t (id int NOT NULL, code int NOT NULL, v int, CONSTRAINT k PRIMARY KEY ({old}))",
        "INSERT INTO t SELECT n, n + 5000, n FROM generate_series(1, 20) n",
    )
    _damage(place, "t")
    cuts, reasons = list[list[int]](), list[str]()

    def report(event: Event) -> None:
        if event.kind == "prove.repair" and "keys" in event.fields:
            place.database.execute(
                f"ALTER TABLE t DROP CONSTRAINT k, ADD CONSTRAINT k PRIMARY KEY ({new})",
                "INSERT INTO t VALUES (100, 100, 1)",
            )
        reasons.extend(map(str, event.fields.get("reasons", {}).values()))

    def look(step: str) -> None:
        if step == "cycle.after_cut":
            cuts.append(_column(place, "t", "id"))

    with watched(look):
        proof = prove(load(place.file), "shop", None, no_spark, RunControl(report=report), ProofRequest(repair=True))
    assert [table.status for table in proof.tables.values()] == ["equal"]
    assert all(set(range(1, 21)) <= set(cut) for cut in cuts)
    assert any("it has another key than when it was compared" in reason for reason in reasons), reasons
