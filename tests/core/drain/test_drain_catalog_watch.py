"""The worker's looks at the catalog: it does nothing else while the catalog gives no answer.

What it finds there is tested with real servers in tests/edges/schema/test_catalog_differences.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.catalog.fingerprint import Fingerprint
from lakeproof.config.model import SourceConfig
from lakeproof.drain.catalog.publications import ManyTablesError
from lakeproof.drain.catalog.watch import TABLES_GONE_MAX, CatalogWatch, _Waiting
from lakeproof.lsn import Lsn
from lakeproof.names import Oid
from lakeproof.postgres.connections.timeouts import Timeout
from tests.core.landing.landing_segments import WRITER, new_chain, version


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


def test_a_stream_of_many_tables_that_are_gone_is_opened_again(tmp_path: Path) -> None:
    """Each announced table takes memory here and in the server's process, and some sources create and drop them all day."""
    source = SourceConfig(name="shop", dsn=SecretStr("host=127.0.0.1 port=1"), publication="pub", slot="shop")
    watch = CatalogWatch(source, new_chain(tmp_path / "lake"), ["pub"], WRITER, Timeout(5.0))
    watch._previous = Fingerprint({}, {}, {})
    for oid in range(1, TABLES_GONE_MAX + 2):
        watch.saw(version(oid=oid))
    with pytest.raises(ManyTablesError, match=f"has announced {TABLES_GONE_MAX + 1} tables"):
        watch.look()
