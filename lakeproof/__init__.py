"""lakeproof: PostgreSQL to Delta Lake over pgoutput, provably equal to the source at an LSN.

`lakeproof.open(spark, lake, at=…)` reads a lake at a cut, `as_of` exactly at a position or time, `register` makes SQL views
at a cut, `changes` and `subscribe` give what changed between cuts. `session(config)` is a Spark session that can read them.
Importing the package does not import Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakeproof.lake.read.as_of import as_of
    from lakeproof.lake.read.changes import changes
    from lakeproof.lake.read.open import open_lake as open  # noqa: A004  its public name
    from lakeproof.lake.read.register import register
    from lakeproof.lake.read.subscribe import subscribe
    from lakeproof.lake.spark.session import session

__version__ = "0.1.0"
__all__ = ["__version__", "as_of", "changes", "open", "register", "session", "subscribe"]

_PLACES = {
    "as_of": ("lakeproof.lake.read.as_of", "as_of"),
    "changes": ("lakeproof.lake.read.changes", "changes"),
    "open": ("lakeproof.lake.read.open", "open_lake"),
    "register": ("lakeproof.lake.read.register", "register"),
    "session": ("lakeproof.lake.spark.session", "session"),
    "subscribe": ("lakeproof.lake.read.subscribe", "subscribe"),
}


def __getattr__(name: str) -> Any:
    # Only who reads a lake pays for Spark's import.
    if name in _PLACES:
        module, attribute = _PLACES[name]
        return getattr(import_module(module), attribute)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
