"""wal2delta: PostgreSQL to Delta Lake over pgoutput, provably equal to the source at an LSN.

`wal2delta.open(spark, lake, at=…)` reads a lake at a cut, `as_of` exactly at a position or time, `register` makes SQL views
at a cut, `changes` and `subscribe` give what changed between cuts. `session(config)` is a Spark session that can read them.
Importing the package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wal2delta.lake.as_of import as_of as as_of
    from wal2delta.lake.changes_between import changes as changes
    from wal2delta.lake.open import open_lake as open  # noqa: A004  its public name
    from wal2delta.lake.register import register as register
    from wal2delta.lake.session import session as session
    from wal2delta.lake.subscribe import subscribe as subscribe

__version__ = "0.1.0"
__all__ = ["__version__", "as_of", "changes", "open", "register", "session", "subscribe"]

_PLACES = {
    "as_of": ("wal2delta.lake.as_of", "as_of"),
    "changes": ("wal2delta.lake.changes_between", "changes"),
    "open": ("wal2delta.lake.open", "open_lake"),
    "register": ("wal2delta.lake.register", "register"),
    "session": ("wal2delta.lake.session", "session"),
    "subscribe": ("wal2delta.lake.subscribe", "subscribe"),
}


def __getattr__(name: str) -> Any:
    # Only who reads a lake pays for Spark's import.
    if name in _PLACES:
        module, attribute = _PLACES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
