"""A file of history is gone: maintenance that reads it holds the table; a copy puts that right, with or without a backup.

Seen once: each run of maintenance advised to copy the table, no copy helped, and old data was never removed.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.maintain import maintain
from lakeproof.events import silent
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.lake.rows import memory
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.names import TableName
from lakeproof.proof.lake.history import check_history
from lakeproof.proof.lake.side import LakeReader
from lakeproof.schema import Identity
from tests.support.faults.damage import data_files
from tests.support.lake.lake_steps import check, run_compact
from tests.support.lake.maintain_steps import policy
from tests.support.lake.simulated_rows import schema
from tests.support.lake.simulated_source import SOURCE, SimulatedSource, SimulatedTable

pytestmark = [pytest.mark.spark, pytest.mark.slow]
ITEM = {"id": "int4", "doc": "text"}
GOOD, GONE, RESTORED = (TableName("app", name) for name in ("good", "gone one", "restored"))
# Older than all changes, so that each history is read and nothing of it leaves.
AGES_S = 1e9


def _cut(source: SimulatedSource) -> Cut:
    cut = newest_cut(source.lake)
    assert cut is not None
    return cut


@pytest.mark.full
def test_a_history_that_can_not_be_read_is_held_and_begun_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first copy may be refused for another reason; a file that was restored meanwhile keeps its history."""
    rng, names = random.Random(1), [GOOD.name, GONE.name, RESTORED.name]
    tables = [SimulatedTable(schema(name, ITEM, ("id",), Identity.DEFAULT, oid)) for oid, name in enumerate(names, 1)]
    source, config = SimulatedSource(tmp_path, tables), policy(tmp_path, history_s=AGES_S)

    def changed(value: str) -> None:
        for number, table in enumerate(tables):
            # The rows of one alone are large.
            source.insert(table, (len(table.rows), value * (50_000 if number == 1 else 1)))
        source.commit(rng)
        source.flush()

    source.snapshot(names)
    changed("a")
    run_compact(spark, config)
    changed("b")
    run_compact(spark, config)
    histories = {t: Path(source.lake.url(source.lake.paths.history(t))) for t in (GOOD, GONE, RESTORED)}
    kept = {table: data_files(histories[table])[-1] for table in (GONE, RESTORED)}
    whole = {table: place.read_bytes() for table, place in kept.items()}
    for place in kept.values():
        place.unlink()

    damaged = maintain(config, SOURCE, spark, silent).damaged
    assert set(damaged) == {str(GONE), str(RESTORED)}
    message = damaged[str(GONE)]
    assert message.reason == f"its history can't be read: {kept[GONE]}"
    assert f"`lakeproof bootstrap {SOURCE} --tables 'app.\"gone one\"'`" in message.remedy
    assert {t for t, held in _cut(source).held.items() if held.history_lost} == {GONE, RESTORED}
    assert maintain(config, SOURCE, spark, silent).damaged == {}, "they are held, and that says it"

    kept[RESTORED].write_bytes(whole[RESTORED])
    changed("c")
    source.snapshot([GONE.name, RESTORED.name])
    with monkeypatch.context() as small:
        # inside: a row that is too large for a real driver takes its memory
        small.setattr(memory, "COPIES", memory.heap_bytes(spark) // 25_000)
        (held,) = run_compact(spark, config)[-1].held.values()
    assert held.reason.startswith("it has a row of up to ")
    assert held.history_lost
    assert _cut(source).tables[RESTORED].history_low is None

    changed("d")
    source.snapshot([GONE.name])
    assert run_compact(spark, config)[-1].held == {}
    changed("e")
    run_compact(spark, config)
    check(config, source, names)
    cut = _cut(source)
    assert {t for t, position in cut.tables.items() if position.history_low is not None} == {GONE}
    reader = LakeReader.of(source.lake, SparkOnDemand.of(spark), "auto")
    for table, position in cut.tables.items():
        assert check_history(reader, table, position).status == "equal"
    assert maintain(config, SOURCE, spark, silent).damaged == {}
