"""The worker's looks at the catalog: it does nothing else while the catalog gives no answer.

What it finds there is tested with real servers in tests/edges/schema/test_catalog_differences.py.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog.watch import CatalogWatch, _Waiting
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.connections.timeouts import Timeout
from tests.core.landing.landing_segments import WRITER, new_chain


def test_after_a_look_that_failed_there_is_time_for_the_stream(tmp_path: Path) -> None:
    """The pause is kept even if a partition's new file waits for its cause, which makes a reading due at once."""
    dsn = SecretStr("host=127.0.0.1 port=1 dbname=nobody connect_timeout=2")
    source = SourceConfig(name="shop", dsn=dsn, publication="pub", slot="shop")
    chain = new_chain(tmp_path / "lake")
    watch = CatalogWatch(source, chain, ["pub"], WRITER, Timeout(5.0))
    watch._has_read = True
    watch._waiting = {Oid(1): _Waiting("", Lsn.ZERO)}
    assert watch.due
    assert watch.look() is None
    assert not watch.due
    assert watch.wait_s > 0
