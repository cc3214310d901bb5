"""The kinds of rows of history that no change brought: their `_lp_op`, and the text of a gap.

Making such rows belongs to `lakeproof.lake.fold.history`, by Spark, and to `lakeproof.lake.cycle.table_again`, without it.
"""

from __future__ import annotations

import json

from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation

SNAPSHOT = "snapshot"
GAP = "gap"
RESET = "reset"
CORRECT_DELETE = "correct_delete"
CORRECT_INSERT = "correct_insert"


def gap_text(since: tuple[Incarnation, Lsn], to: tuple[Incarnation, Lsn]) -> str:
    """Return the `_lp_text` of a gap: nothing is known between these positions, of two incarnations."""
    return json.dumps({"from": f"{since[0]}:{since[1]}", "to": f"{to[0]}:{to[1]}"})
