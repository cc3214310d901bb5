"""Commands that maintenance and its proofs recommend can be typed: names that a shell would take apart are quoted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakeproof.commands import maintain
from lakeproof.errors import LakeError
from lakeproof.lake.cycle.upkeep.logs import HistoryLostError, lost_history
from lakeproof.lake.cycle.upkeep.table_files import Damaged
from lakeproof.lake.records.held import describe_held
from lakeproof.lsn import Lsn
from lakeproof.proof.lake import by_itself as prove_lake
from lakeproof.proof.lake.side import LakeReader
from lakeproof.storage.source_lake import SourceLake
from tests.core.lake.lake_document_samples import CUT, TABLE

TYPED = "--tables 'public.\"order lines\"'"


@pytest.fixture
def lake(tmp_path: Path) -> SourceLake:
    """An empty one."""
    return SourceLake.open(str(tmp_path), "shop")


def test_a_table_that_can_not_be_read(lake: SourceLake) -> None:
    """The remedy covers every damage; if history is lost, a copy is not the whole remedy."""
    damaged = Damaged("shop")
    damaged.add(TABLE, LakeError("/x", "its log is damaged", "restore it"))
    assert damaged[TABLE].remedy == f"run `lakeproof bootstrap shop {TYPED}`, then compact: it is copied again"
    file = f"{lake.url(lake.paths.history(TABLE))}/part-0.parquet"
    lost = lost_history(lake, TABLE, file)
    assert isinstance(lost, HistoryLostError)
    held = lost.held(Lsn(1))
    assert held.history_lost
    assert held.reason.endswith(file)
    assert describe_held(held, "shop", TABLE).remedy.endswith(
        f"then run `lakeproof bootstrap shop {TYPED}`, then compact"
    )
    assert lost_history(lake, TABLE, f"{lake.url(lake.paths.current(TABLE))}/part-0.parquet") is None
    assert lost_history(lake, TABLE, None) is None


def test_a_table_that_can_not_be_made_from_its_history(lake: SourceLake) -> None:
    """History is damaged, or the table's schema has changed since."""
    spark: Any = None
    with pytest.raises(LakeError) as raised:
        prove_lake.refuse_damaged(LakeReader(lake, spark), CUT, [TABLE])
    assert f"`lakeproof prove shop {TYPED} --repair`" in raised.value.remedy
    for name in ("0" * 16, "1" * 16):
        lake.store.put_if_absent(f"{lake.paths.schema_versions(TABLE)}/{name}.json", b"{}")
    with pytest.raises(LakeError) as raised:
        maintain._check_request(lake, None, maintain.MaintenanceRequest([TABLE]))
    assert f"`lakeproof prove shop {TYPED} --repair`" in raised.value.remedy
