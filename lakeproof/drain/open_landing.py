"""Opens the landing that a drain extends; there must be one.

Beginning a landing does not belong here (`lakeproof.snapshot`).
"""

from __future__ import annotations

from lakeproof.config.model import Config, SourceConfig
from lakeproof.landing.chain import Chain
from lakeproof.landing.missing import no_landing
from lakeproof.storage.source_lake import SourceLake


def open_landing(config: Config, source: SourceConfig) -> Chain:
    """Return the chain of the source's newest incarnation; raises LakeError if there is none or it is damaged."""
    lake = SourceLake.open(config.location, source.name)
    chain = Chain.open_newest(lake)
    if chain is None:
        raise no_landing(lake)
    return chain
