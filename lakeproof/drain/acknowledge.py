"""The one place that moves the slot forward (invariant ack-after-durable).

What is durable is known from a manifest that the chain has taken in, and from nothing else: so `acknowledge` wants one.
Deciding when a segment or a progress range ends does not belong here.
"""

from __future__ import annotations

from lakeproof.landing.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_stream import ReplicationStream


def acknowledge(stream: ReplicationStream, durable: Manifest) -> Lsn:
    """Tell the server the end of a manifest that `Chain.append` or `Chain.open` returned; gives that position.

    Raises TransientError where the connection is lost.
    """
    stream.acknowledge(durable.end_lsn)
    return durable.end_lsn
