"""The errors of the worker thread as the project's own: what it read, and where it wrote.

`flush.py` is that thread.
"""

from __future__ import annotations

import pyarrow as pa

from lakeproof.errors import InvariantError, LakeproofError, SourceError
from lakeproof.landing.chain import Chain
from lakeproof.pgoutput.decoder import ProtocolError
from lakeproof.storage.disk import disk_error


def translated(error: BaseException, chain: Chain) -> BaseException:
    """Return the error as one of the project's own; other kinds stay as they are."""
    landing = chain.lake.url(chain.lake.paths.landing(chain.incarnation))
    if isinstance(error, LakeproofError):
        return error
    own: LakeproofError
    if isinstance(error, ProtocolError):
        own = SourceError("replication stream", str(error), "nothing was acknowledged; report this message's form")
    elif isinstance(error, OSError) and not isinstance(error, pa.ArrowException):
        own = disk_error(f"landing {landing}", "writing to it", error)
    elif isinstance(error, pa.ArrowException):
        own = InvariantError(f"landing {landing}", f"its rows can't be written ({type(error).__name__})", "report this")
    else:
        return error
    own.__cause__ = error
    return own
