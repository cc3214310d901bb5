"""Reads as fresh as the landing while maintenance removes it: opened, they begin again, or they say that it was removed.

What they give is in `tests/properties/reading/test_landed.py`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakeproof
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config
from lakeproof.drain.until import Until
from lakeproof.errors import LakeError
from lakeproof.lake.records.cuts.choice import cuts_at
from lakeproof.lake.records.documents import Cut
from lakeproof.lake.records.store import newest_cut
from lakeproof.landing.chain import Chain
from lakeproof.landing.retention import put_chain_start, remove_below
from lakeproof.landing.segments.reader import file_url
from lakeproof.storage.source_lake import SourceLake
from tests.support.lake.proof_steps import into_the_lake
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


@pytest.fixture
def config(database: Database, tmp_path: Path) -> Config:
    """A table in the lake, with a row that has landed since."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY)", "CREATE PUBLICATION pub FOR TABLE items")
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": database.source()})
    bootstrap(config, "shop")
    into_the_lake(config)
    _land(config, database)
    return config


def _land(config: Config, database: Database) -> None:
    database.execute("INSERT INTO items SELECT count(*) FROM items")
    drain(config, "shop", Until.caught_up())


def _remove(config: Config, database: Database) -> None:
    """Compact, and remove all that is in a cut and more, as `retention.landing_s: 0` does at the next maintenance."""
    into_the_lake(config)
    _land(config, database)
    cut, chain = newest_cut(SourceLake.open(config.location, "shop")), _chain(config)
    assert cut is not None
    put_chain_start(chain, chain.number_after(cut.position))
    chain.reread_start()
    remove_below(chain, chain.first_number)


def _chain(config: Config) -> Chain:
    chain = Chain.open_newest(SourceLake.open(config.location, "shop"))
    assert chain is not None
    return chain


def _ids(config: Config) -> list[int]:
    rows = lakeproof.read(config, at="landing").table("shop", "public.items").arrow()
    return sorted(rows["id"].to_pylist())


def test_it_is_removed_after_the_lake_was_opened(config: Config, database: Database) -> None:
    """The tables of that lake were at one position, so they are not read at another: the remedy is to open it again."""
    opened = lakeproof.read(config, at="landing")
    _remove(config, database)
    with pytest.raises(LakeError, match="a later cut has it, and it is not kept any more; open the lake again"):
        opened.table("shop", "public.items")
    assert _ids(config) == [0, 1]


def test_it_is_removed_while_the_lake_is_opened(
    config: Config, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cut was read already: it is opened again, at the newest one."""
    opened: list[dict[str, Cut]] = []

    def choose_and_remove(*arguments: object) -> dict[str, Cut]:
        opened.append(cuts_at(*arguments))  # type: ignore[arg-type]  # as they came
        if len(opened) == 1:
            _remove(config, database)
        return opened[-1]

    # inside: a cycle and a maintenance run between two steps of a read
    monkeypatch.setattr("lakeproof.lake.planning.landing.end.cuts_at", choose_and_remove)
    assert _ids(config) == [0, 1]
    assert len(opened) == 2


def test_a_file_that_was_lost_is_named(config: Config) -> None:
    """The landing begins where it began: somebody else has removed the file."""
    chain = _chain(config)
    (file,) = (file for manifest in chain.manifests() for file in manifest.files)
    Path(file_url(chain, file)).unlink()
    with pytest.raises(LakeError, match="it is missing; restore the file from a backup"):
        _ids(config)
