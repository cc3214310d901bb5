"""Brings a table into a format with a query engine, with the tools that a Python user would choose.

It is a separate program, in an environment that `bench.lake.entry` creates: importing lakeproof does not belong here.

    python bench/lake/entry_peers.py PEER URI FOLDER
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

_CHUNK_ROWS = 100_000
_PATIENCE_S = 600


def main() -> None:
    """Run one peer; prints the seconds after its imports, the rows, and the folder or file of its table."""
    peer, uri, folder = sys.argv[1:]
    # Neither logs nor reports to its makers.
    os.environ |= {"RUNTIME__DLTHUB_TELEMETRY": "false", "RUNTIME__LOG_LEVEL": "CRITICAL", "DISABLE_TELEMETRY": "true"}
    document = _ingestr(uri, Path(folder)) if peer == "ingestr" else _dlt(peer, uri, Path(folder))
    print(json.dumps(document))


def _dlt(peer: str, uri: str, folder: Path) -> dict[str, Any]:
    os.environ["DLT_DATA_DIR"] = str(folder / "dlt")
    dlt: Any = importlib.import_module("dlt")
    database: Any = importlib.import_module("dlt.sources.sql_database")
    deltalake: Any = importlib.import_module("deltalake")
    started = time.monotonic()
    options: dict[str, Any] = {"backend": "pyarrow", "chunk_size": _CHUNK_ROWS}
    if peer == "dlt, ConnectorX":
        options |= {"backend": "connectorx", "backend_kwargs": {"return_type": "arrow_stream", "conn": uri}}
    rows = database.sql_table(
        credentials=uri.replace("postgresql://", "postgresql+psycopg2://"), table="rows", **options
    )
    rows.apply_hints(table_format="delta")
    pipeline = dlt.pipeline(
        "bench",
        destination=dlt.destinations.filesystem(bucket_url=f"file://{folder}/lake"),
        dataset_name="bench",
        pipelines_dir=str(folder / "pipelines"),
    )
    pipeline.run(rows, write_disposition="replace")
    wall_s = time.monotonic() - started
    table = folder / "lake" / "bench" / "rows"
    count = deltalake.DeltaTable(str(table)).to_pyarrow_dataset().count_rows()
    return {"wall_s": wall_s, "rows": count, "table": str(table)}


def _ingestr(uri: str, folder: Path) -> dict[str, Any]:
    """Run ingestr, whose package fetches its program when it is first called: that may not be possible here."""
    program, table = str(Path(sys.executable).with_name("ingestr")), folder / "rows.duckdb"
    try:
        version = subprocess.run(
            [program, "--version"], capture_output=True, text=True, check=False, timeout=_PATIENCE_S
        )
    except subprocess.TimeoutExpired:
        # The network does not refuse, it is silent.
        return {"unavailable": f"its program was not there after {_PATIENCE_S} s"}
    if version.returncode != 0:
        return {"unavailable": f"its program can't be fetched: {version.stderr.strip()[-200:]}"}
    command = [program, "ingest", "--yes", "--source-uri", uri, "--source-table", "public.rows"]
    command += ["--dest-uri", f"duckdb:///{table}", "--dest-table", "bench.rows"]
    started = time.monotonic()
    subprocess.run(command, stdout=sys.stderr, check=True)
    wall_s = time.monotonic() - started
    duckdb: Any = importlib.import_module("duckdb")
    count = duckdb.connect(str(table), read_only=True).execute("SELECT count(*) FROM bench.rows").fetchone()
    return {"wall_s": wall_s, "rows": count[0], "table": str(table)}


if __name__ == "__main__":
    main()
