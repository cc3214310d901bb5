"""A snapshot's memory is bounded by its connections and its largest row, not by its tables: values of many megabytes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from lakeproof.config.model import Config, SnapshotConfig
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import finished_tables
from lakeproof.storage.source_lake import SourceLake
from tests.support.ingest.fix_drain import SOURCE, Drained
from tests.support.ingest.snapshot_process import start_bootstrap

pytestmark = [pytest.mark.postgres, pytest.mark.slow, pytest.mark.full]
_MB = 1 << 20
VALUE_BYTES = 8 * _MB
# Two connections, each with a block being received and one being written, in several forms (bytes, Arrow, Parquet).
GROWTH_BYTES_MAX = 250 * _MB


@pytest.mark.parametrize("rows", [10, 100])
def test_the_peak_does_not_grow_with_the_table(drained: Drained, rows: int) -> None:
    """80 MB and 800 MB of text have the same limit."""
    drained.database.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with drained.database.connect() as conn:
        conn.execute("INSERT INTO t SELECT g, repeat('0123456789abcdef', %s) FROM generate_series(1, %s) g",
                     [VALUE_BYTES // 16, rows])  # fmt: skip
    process = start_bootstrap(_config(drained))
    assert process.pid is not None
    first = peak = _peak_bytes(process.pid)
    while process.is_alive():
        peak = max(peak, _peak_bytes(process.pid))
        time.sleep(0.02)
    process.join()
    assert process.exitcode == 0
    lake = SourceLake.open(str(drained.lake), SOURCE)
    assert finished_tables(lake, Incarnation(1))[TableName("public", "t")].table.rows == rows
    assert peak - first < GROWTH_BYTES_MAX


def _config(shop: Drained) -> Config:
    config = shop.config()
    source = config.sources[SOURCE].model_copy(update={"snapshot": SnapshotConfig(connections=2, chunk_pages=1)})
    return config.model_copy(update={"sources": {SOURCE: source}})


def _peak_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
