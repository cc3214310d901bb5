"""A process that wakes when another one has finished its cycle: it removes no file that is the table's by now."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakeproof.errors import LakeError, TransientError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.arrow_rows import DeltaRows
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.files.needed import table_files, unneeded
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec
from lakeproof.storage.local import LocalStore
from lakeproof.storage.open import register_store
from tests.support.faults.crashes import Crash
from tests.support.lake.linkable_rows import SPARK_TYPES, land, random_rows

INFO = CommitInfo("lakeproof/shop/1/current/shop.t", 7, "{}")


class Sleepy(LocalStore):
    """A store whose locks a sleeping process loses, as an object store's are."""

    @property
    def holders_may_sleep(self) -> bool:
        return True


def _asked_to_end(request: LinkRequest, sleep: Callable[[], None]) -> None:
    def woken(name: str) -> None:
        if name == "links.after_name":
            sleep()
            raise Crash(name)

    with pytest.raises(Crash), watched(woken):
        prepare_links(request)


def _without_the_next_file(request: LinkRequest, sleep: Callable[[], None]) -> None:
    """The segment has been removed since."""
    (link,) = request.links
    gone = replace(link.landed, url=link.landed.url.replace("000001", "000002"))

    def woken(name: str) -> None:
        if name == "links.after_name":
            sleep()

    with pytest.raises(LakeError, match="it is missing"), watched(woken):
        prepare_links(replace(request, links=[link, Link(gone)]))


def _amid_the_other_half(request: LinkRequest, sleep: Callable[[], None]) -> None:
    """It has prepared current's commit, and fails with history's."""

    def history() -> None:
        sleep()
        raise TransientError("the store", "no answer", "try again")

    with pytest.raises(TransientError), prepare_links(request).or_discarded():
        history()


WAYS: list[Callable[[LinkRequest, Callable[[], None]], None]] = [
    _asked_to_end,
    _without_the_next_file,
    _amid_the_other_half,
]


@pytest.mark.parametrize("way", WAYS)
def test_a_file_that_another_process_has_committed_stays(tmp_path: Path, way: Callable[..., None]) -> None:
    """Each attempt of a cycle gives a landed file the same name."""
    request = _request(tmp_path, Sleepy(tmp_path))

    def follow() -> None:
        with watched(lambda _name: None):
            assert prepare_links(request).commit().version == 1

    way(request, follow)
    opened = DeltaRows.open(request.path, 1)
    assert pa.Table.from_batches(list(opened.batches(["id"]))).num_rows == 100
    assert unneeded(request.path, table_files(request.path, 1)) == []


@pytest.mark.parametrize("way", WAYS)
def test_in_a_folder_nothing_is_left_behind(tmp_path: Path, way: Callable[..., None]) -> None:
    """There a process that has lost its lock is dead: nobody has committed the file."""
    request = _request(tmp_path, LocalStore(tmp_path))
    way(request, lambda: None)
    assert unneeded(request.path, table_files(request.path, 0)) == []


def _request(folder: Path, store: LocalStore) -> LinkRequest:
    """A cycle's second commit, of one landed file, to a table of 50 rows."""
    register_store(store)
    table, columns = str(folder / "current" / "t"), {name: name for name in SPARK_TYPES}
    files = [land(folder / "landing", f"00000{n}-ab.parquet", random_rows(random.Random(n), 50)) for n in (0, 1)]
    before, create = replace(INFO, number=6), NewTable(SPARK_TYPES, TableSpec())
    prepare_links(LinkRequest(table, before, [Link(files[0])], columns, NO_VERSION, create=create)).commit()
    return LinkRequest(table, INFO, [Link(files[1])], columns, 0)
