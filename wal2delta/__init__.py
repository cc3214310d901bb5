"""wal2delta: PostgreSQL to Delta Lake over pgoutput, provably equal to the source at an LSN.

`wal2delta.open(spark, config, at=…)` reads a lake (see `wal2delta.lake.open`). Importing the package does not import Spark.
"""

from __future__ import annotations

from typing import Any

__all__ = ["open"]


def __getattr__(name: str) -> Any:
    # Only who reads a lake pays for Spark's import.
    if name == "open":
        from wal2delta.lake.open import open_lake

        return open_lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
