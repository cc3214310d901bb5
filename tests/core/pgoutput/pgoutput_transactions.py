"""Messages of one relation and of one transaction, for the decoders' tests.

Random messages are in `pgoutput_random.py`, and the bytes of each in `pgoutput_encoder.py`.
"""

from __future__ import annotations

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    Message,
    Relation,
    RelationColumn,
)
from lakeproof.schema import Identity
from tests.core.pgoutput.pgoutput_random import KIND_OIDS

T1, T2 = Oid(16384), Oid(16390)
TIME = 1_700_000_000_000_000


def relation(
    oid: Oid = T1, kinds: tuple[str, ...] = ("int4", "text"), identity: Identity = Identity.DEFAULT
) -> Relation:
    """A table whose first column is its key."""
    columns = tuple(
        RelationColumn(f"{kind} {i}", Oid(KIND_OIDS[kind]), -1, i == 0 or identity is Identity.FULL)
        for i, kind in enumerate(kinds)
    )
    return Relation(oid, "public", f"t{oid}", identity, columns)


def transaction(number: int, *messages: Message) -> list[Message]:
    """The messages as the transaction with this number; its position is 1000 * number + 8."""
    lsn = Lsn(1000 * number)
    return [Begin(lsn, TIME - number, Xid(number)), *messages, Commit(lsn, Lsn(lsn.value + 8), TIME - number)]
