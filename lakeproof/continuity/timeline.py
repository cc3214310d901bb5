"""Checks that a server on another timeline (a promoted standby or a restore) has the landing's past in its history.

The positions of landing and slot are not compared here (`gap.py`).

    timeline 1   ──────────────┬───────────          the old primary, wherever it went
                               └─ S                   timeline 2 leaves at S
    landing      ─────────┤ E                          E ≤ S: all that landed is the new primary's past too
    landing      ────────────────────┤ E               E > S: the new primary never had the changes in between
"""

from __future__ import annotations

from lakeproof.config.model import SourceConfig
from lakeproof.errors import RECOVER, GapError
from lakeproof.landing.chain import Chain
from lakeproof.landing.timelines import Followed, Switch, newest_followed
from lakeproof.postgres.server import ServerIdentity, timeline_history


def later_timeline(source: SourceConfig, server: ServerIdentity, chain: Chain, *, has_reader: bool) -> Followed | None:
    """Return the server's timeline if the landing may follow it, None if the landing is on it already.

    The way to a timeline that was followed is compared, which takes a connection, unless the slot `has_reader`: that has
    compared it. Raises GapError if the server's history is not the landing's, TransientError if it can't be read.
    """
    followed = newest_followed(chain)
    on = (
        followed.timeline
        if followed is not None
        else chain.head.source.timeline
        if chain.head.source is not None
        else 0
    )
    thing = f"source {source.name}"
    if server.timeline == on and (followed is None or has_reader):
        return None
    if server.timeline < on:
        reason = f"the server is on timeline {server.timeline}, the landing has followed it to {on}"
        remedy = f"see that this is not a former primary that came back, and correct the dsn; or {RECOVER}"
        raise GapError(thing, f"{reason}: it is another server, or was restored to an earlier time", remedy)
    now = Followed(server.timeline, tuple(Switch(*s) for s in timeline_history(source.dsn, server.timeline)))
    if followed is not None and now.switches[: len(followed.switches)] != followed.switches:
        reason = f"the server came to timeline {server.timeline} by another way than the one the landing has followed"
        raise GapError(thing, f"{reason}: two standbys were promoted apart", f"correct the dsn, or {RECOVER}")
    if server.timeline == on:
        return None
    left = now.left(on)
    if left is None:
        reason = f"the server's timeline {server.timeline} did not come from {on}, which the landing is on"
        raise GapError(thing, reason, f"correct the dsn, or {RECOVER}")
    if chain.end > left:
        reason = (
            f"the server went to timeline {server.timeline} at {left}, the landing ends at {chain.end}:"
            f" the changes in between landed from a server that is gone, and this one's history differs from {left} on"
        )
        raise GapError(thing, reason, RECOVER)
    return now
