"""One column of a kind, and texts cast to it.

The extremes of each kind belong to `test_values_cast.py`.
"""

from __future__ import annotations

import pyarrow as pa

from lakeproof.names import Oid
from lakeproof.schema import Column
from lakeproof.values.cast import Cast, cast_column
from lakeproof.values.types import decimal_typmod
from tests.core.pgoutput.pgoutput_random import OIDS


def column(kind: str, typmod: int | None = None, attnum: int = 1) -> Column:
    """A column of a kind; a numeric is numeric(10,2) if nothing else is given."""
    if typmod is None:
        typmod = decimal_typmod(10, 2) if kind.startswith("numeric") else -1
    return Column("a", Oid(OIDS[kind]), typmod, kind, kind, attnum, False)


def cast(kind: str, *texts: str | None, typmod: int | None = None) -> Cast:
    """Cast these texts."""
    return cast_column(pa.array(texts, pa.string()), column(kind, typmod))
