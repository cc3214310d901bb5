"""The one place that moves the slot forward (invariant ack-after-durable).

Only a manifest that the chain has appended proves what is durable, so `acknowledge` takes one.
"""

from __future__ import annotations

from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn
from lakeproof.postgres.replication_stream import ReplicationStream


def acknowledge(stream: ReplicationStream, durable: Manifest) -> Lsn:
    """Acknowledge the end of a manifest that `Chain.append` or `Chain.open` returned; returns that position.

    Raises TransientError if the connection is lost.
    """
    stream.acknowledge(durable.end_lsn)
    return durable.end_lsn
