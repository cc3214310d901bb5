"""Says of a source whose stream is stuck what everybody should be shown of it.

When a stream is stuck is decided by the drain (`lakeproof.drain.stuck`), and the way out is `lakeproof.commands.recover`.
"""

from __future__ import annotations

from lakeproof.errors import StuckError
from lakeproof.landing.chain import Chain
from lakeproof.landing.stuck import abandon, read_stuck
from lakeproof.postgres.replication_slot import SlotState


def remedy_if_stuck(chain: Chain | None) -> str | None:
    """Return the one remedy for everything that waits for the stream, None if the stream is not stuck."""
    return None if chain is None or read_stuck(chain) is None else abandon(chain.lake.source)


def refuse_stuck(chain: Chain | None, slot: SlotState | None) -> None:
    """Raise the state as an error, with what the slot keeps meanwhile, if the stream is stuck."""
    stuck = None if chain is None else read_stuck(chain)
    if chain is None or stuck is None:
        return
    error = stuck.error(chain.lake.source)
    kept = None if slot is None else slot.retained_bytes
    if kept is None:
        raise error
    raise StuckError(error.thing, f"{error.reason}; meanwhile the slot keeps {kept:,} bytes of WAL", error.remedy)
