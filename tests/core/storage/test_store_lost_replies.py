"""A file system that did what it was asked and says that it did not: over NFS a reply may be lost.

What stands under the name decides who has put it. What a name that is really taken does belongs to `test_store.py`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakeproof.errors import TransientError
from lakeproof.lake.records.lease import _take
from lakeproof.landing.chain import Chain, FencedError, verify_chain
from lakeproof.landing.segments.reader import verify_files
from lakeproof.landing.sweep import sweep
from lakeproof.lsn import Lsn
from lakeproof.storage.local import LocalStore
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError
from tests.core.landing.landing_segments import OTHER_WRITER, add_segment, new_chain, reopen

LOST = [errno.EEXIST, errno.EIO, errno.ESTALE, errno.EPERM, errno.ETIMEDOUT]


def _reply_lost(number: int, real: Callable[..., None] = os.link) -> Callable[..., None]:
    """`os.link` that does it, and then says that it has failed."""

    def link(*given: Any, **named: Any) -> None:
        real(*given, **named)
        raise OSError(number, os.strerror(number))

    return link


@pytest.fixture(params=LOST, ids=[errno.errorcode[number] for number in LOST])
def lost(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make every link, and report each as failed."""
    monkeypatch.setattr(os, "link", _reply_lost(request.param))  # inside: a file server that loses its replies
    return int(request.param)


@pytest.mark.usefixtures("lost")
def test_a_put_whose_reply_is_lost_is_a_put(tmp_path: Path) -> None:
    """The document is put once; other bytes under the same name are refused, and leave nothing behind."""
    store = LocalStore(tmp_path)
    store.put_if_absent("n/1", b"first")
    assert store.get("n/1") == b"first"
    with pytest.raises(AlreadyExistsError):
        store.put_if_absent("n/1", b"second")
    assert store.get("n/1") == b"first"
    assert os.listdir(tmp_path / "n") == ["1"]  # noqa: PTH208  hidden names too


@pytest.mark.usefixtures("lost")
def test_a_segment_whose_link_s_reply_is_lost_is_in_the_chain_with_its_files(tmp_path: Path) -> None:
    """The writer goes on; nothing that the durable manifest names is removed, by it or by the next one's sweep."""
    chain = new_chain(tmp_path / "lake")
    add_segment(chain, 2000)
    add_segment(chain, 3000)
    again = reopen(chain)
    assert not sweep(again).removed
    assert (again.end, verify_chain(again)) == (Lsn(3000), 3)
    for manifest in again.manifests():
        verify_files(again, manifest)


class _Unsure(LocalStore):
    """A store that puts a document and says that the name was taken, since it could not be asked whose it is."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = True, follows: str | None = None) -> None:
        super().put_if_absent(key, data, durable=durable, follows=follows)
        raise AlreadyExistsError(key)


class _Stale(LocalStore):
    """A store that lists what was there before this process and another one looked: nothing."""

    def list(self, prefix: str, after: str = "") -> list[str]:
        del prefix, after
        return []


def test_a_link_that_failed_although_the_manifest_stands_leaves_its_files(tmp_path: Path) -> None:
    """If reading back fails too, the name's owner is unknown: the files stay, and the next writer goes on from there."""
    chain = new_chain(tmp_path / "lake")
    unsure = SourceLake(_Unsure(tmp_path / "lake"), chain.lake.paths)
    with pytest.raises(FencedError):
        add_segment(Chain.open(unsure, chain.incarnation), 2000)
    again = reopen(chain)
    assert not sweep(again).removed
    verify_files(again, again.newest)
    add_segment(again, 3000, writer=OTHER_WRITER)
    assert verify_chain(reopen(chain)) == 3


@pytest.mark.usefixtures("lost")
def test_a_lease_belongs_to_one_writer_after_any_reply(tmp_path: Path) -> None:
    """Two that want the same epoch: each names itself in its document, so that one has it and the other has not."""
    lake = SourceLake(_Stale(tmp_path), LakePaths("shop"))
    lease = _take(lake)
    with pytest.raises(TransientError):
        _take(lake)
    assert lease.writer.encode() in lake.store.get(lake.paths.lease(1))
