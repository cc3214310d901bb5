"""Both stores, a local folder and an object store: what is put once stays, and nothing half is ever seen.

What only a folder or only an object store can do wrong is below, or in `test_object_store_*.py`.
"""

from __future__ import annotations

import hashlib
import os
import random
import stat
from pathlib import Path

import pytest

from lakeproof.errors import ConfigError, TransientError
from lakeproof.names import Incarnation, TableName
from lakeproof.snapshot.folder import snapshot_lock
from lakeproof.storage.local import LocalStore, local_folder
from lakeproof.storage.object.files import PART_BYTES
from lakeproof.storage.open import open_store
from lakeproof.storage.source_lake import SourceLake
from lakeproof.storage.store import AlreadyExistsError, NewFile, NotFoundError, Store


@pytest.fixture
def folder(tmp_path: Path) -> Store:
    """A store whose folder does not exist yet."""
    return LocalStore(tmp_path / "new" / "lake")


_FIXTURES = {"folder": "folder", "google": "cloud_store", "azurite": "cloud_store"}


@pytest.fixture(
    params=[
        "folder",
        "s3",
        "google",
        *(pytest.param(kind, marks=pytest.mark.full) for kind in ("versitygw", "azurite")),
    ]
)
def store(request: pytest.FixtureRequest) -> Store:
    """An empty store of each kind."""
    chosen: Store = request.getfixturevalue(_FIXTURES.get(request.param, "s3_store"))
    return chosen


def test_what_was_put_can_be_read(store: Store) -> None:
    """Bytes come back as they were."""
    store.put_if_absent("a/b/c.json", b"x\0y")
    assert store.get("a/b/c.json") == b"x\0y"
    assert store.exists("a/b/c.json")
    assert store.size("a/b/c.json") == 3


def test_a_new_lake_is_for_its_user_alone(folder: Store, tmp_path: Path) -> None:
    """Only the user may read the lake; the folders above get the usual mode, and an existing lake keeps its own."""
    folder.put("a/b", b"x")
    assert stat.S_IMODE((tmp_path / "new" / "lake").stat().st_mode) == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o750)
    LocalStore(shared).put("a/b", b"x")
    assert stat.S_IMODE(shared.stat().st_mode) == 0o750


def test_a_snapshot_that_comes_first_makes_it_so_too(tmp_path: Path) -> None:
    """The lock is the first file of a new lake."""
    lake = SourceLake.open(str(tmp_path / "lake"), "shop")
    with snapshot_lock(lake):
        assert stat.S_IMODE((tmp_path / "lake").stat().st_mode) == 0o700


def test_a_second_put_if_absent_fails_and_changes_nothing(store: Store) -> None:
    """The first writer keeps the name."""
    store.put_if_absent("n/1", b"first")
    with pytest.raises(AlreadyExistsError, match="n/1"):
        store.put_if_absent("n/1", b"second")
    assert store.get("n/1") == b"first"
    assert store.list("n") == ["n/1"]


def test_a_failed_put_leaves_no_temporary_file(folder: Store, tmp_path: Path) -> None:
    """Hidden files count, too."""
    folder.put_if_absent("n/1", b"first")
    with pytest.raises(AlreadyExistsError):
        folder.put_if_absent("n/1", b"second")
    assert os.listdir(tmp_path / "new/lake/n") == ["1"]  # noqa: PTH208  hidden names too


def test_put_replaces(store: Store) -> None:
    """The newest put wins."""
    store.put("a", b"1")
    store.put("a", b"22")
    assert store.get("a") == b"22"


@pytest.mark.parametrize("key", ["missing", "folder", "file/below"])
def test_reading_a_missing_key_is_an_error(store: Store, key: str) -> None:
    """A folder is not a key, and neither is something below a file."""
    store.put("folder/x", b"")
    store.put("file", b"")
    with pytest.raises(NotFoundError):
        store.get(key)
    with pytest.raises(NotFoundError):
        store.open(key)
    assert not store.exists(key)


@pytest.mark.parametrize("key", ["../x", "a/../../x", "a/./b", "a/\0"])
def test_a_key_never_leaves_the_lake(store: Store, key: str) -> None:
    """Parts that climb are refused."""
    with pytest.raises(ValueError, match="not a key"):
        store.put(key, b"")


def test_listing_is_sorted_deep_and_without_what_is_not_finished(store: Store) -> None:
    """Hidden names belong to the store."""
    for key in ("a/2", "a/1", "a/b/3", "c/4", "ab/5", "a/.lp-123"):
        store.put(key, b"")
    assert store.list("a") == ["a/1", "a/2", "a/b/3"]
    assert store.list("nothing") == []
    assert store.folders("a") == ["b"]
    assert [name for name in store.folders("") if not name.startswith(".")] == ["a", "ab", "c"]


def test_sweeping_removes_old_temporary_files_only(folder: Store, tmp_path: Path) -> None:
    """A young one may belong to a put that is going on."""
    folder.put("a/1", b"")
    for name, age_s in ((".lp-old", 7200), (".lp-young", 1)):
        path = tmp_path / "new/lake/a" / name
        path.write_bytes(b"half")
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    assert folder.sweep("a", 3600) == 1
    assert sorted(p.name for p in (tmp_path / "new/lake/a").iterdir()) == [".lp-young", "1"]


def test_deleting_twice_is_no_error(store: Store) -> None:
    """A process may die right after it has deleted a file, and then delete it again."""
    store.put("a", b"")
    store.delete("a")
    store.delete("a")
    assert not store.exists("a")


def test_a_new_file_counts_and_digests_what_passes(store: Store) -> None:
    """The manifest needs size and digest without a second read."""
    file = store.create("d/f")
    file.write(b"abc")
    file.write(b"def")
    file.finish()
    store.sync_names(["d/f"])
    assert (file.bytes_written, file.closed) == (6, True)
    assert file.sha256 == "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721"
    assert store.get("d/f") == b"abcdef"
    with pytest.raises(AlreadyExistsError):
        _write(store.create("d/f"), b"other")
    assert store.get("d/f") == b"abcdef"


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 17])
def test_a_file_of_any_size_comes_back(store: Store, size: int) -> None:
    """In one part or in several: written in pieces, read whole, in pieces, and from its end."""
    data = random.Random(size).randbytes(size)
    file = store.create("d/f")
    for start in range(0, size, 3_000_001):
        file.write(data[start : start + 3_000_001])
    assert not store.exists("d/f") or isinstance(store, LocalStore)
    file.finish()
    store.sync_names(["d/f"])
    assert (file.bytes_written, file.sha256) == (size, hashlib.sha256(data).hexdigest())
    assert store.size("d/f") == size
    with store.open("d/f") as opened:
        assert opened.read() == data
        assert opened.seek(-min(10, size), os.SEEK_END) == size - min(10, size)
        assert opened.read() == data[size - min(10, size) :]
        opened.seek(0)
        assert b"".join(iter(lambda: opened.read(1_234_567), b"")) == data


def test_reading_here_and_there_gives_what_stands_there(store: Store) -> None:
    """As a reader of Parquet does: the end, then pieces in any order, some longer than what is read ahead."""
    chance = random.Random(7)
    data = chance.randbytes(2 * PART_BYTES)
    _write(store.create("d/f"), data)
    with store.open("d/f") as opened:
        for _ in range(60):
            start, length = chance.randrange(len(data)), chance.choice([0, 1, 100, 1 << 20, 12 << 20])
            opened.seek(start)
            assert opened.read(length) == data[start : start + length]
        opened.seek(len(data) + 5)
        assert opened.read(3) == b""


def _write(file: NewFile, data: bytes) -> None:
    file.write(data)
    file.finish()


def test_an_unfinished_file_that_is_abandoned_never_was(store: Store) -> None:
    """In memory, or with parts on their way."""
    for size in (10, 3 * PART_BYTES):
        file = store.create(f"d/{size}")
        file.write(b"x" * size)
        file.abandon()
        assert file.closed
    assert store.list("d") == []


def test_an_abandoned_file_is_gone(store: Store) -> None:
    """Abandoning also works after the file was finished, and twice."""
    file = store.create("d/f")
    file.write(b"abc")
    file.finish()
    file.abandon()
    file.abandon()
    assert store.list("d") == []


def test_a_lock_keeps_others_out_and_names_its_holder(store: Store) -> None:
    """A lock works in a lake without a folder, too; whoever held it last is named when it is free."""
    assert store.is_locked("a/run.lock") is False
    assert store.lock_holder("a/run.lock") is None
    with store.lock("a/run.lock", "thing", "it is taken"):
        assert store.is_locked("a/run.lock") is True
        assert str(store.lock_holder("a/run.lock")).startswith(f"process {os.getpid()} on ")
        assert store.share_lock("a/run.lock", 0.0) is None
        with pytest.raises(TransientError, match="it is taken"), store.lock("a/run.lock", "thing", "it is taken"):
            pass
    assert store.is_locked("a/run.lock") is False
    shared = [store.share_lock("a/run.lock", 0.0) for _ in range(2)]
    assert store.is_locked("a/run.lock") is True
    for lock in shared:
        assert lock is not None
        lock.release()
    assert store.is_locked("a/run.lock") is False
    assert str(store.lock_holder("a/run.lock")).startswith(f"process {os.getpid()} on ")


def test_a_lock_that_can_not_be_looked_at_is_unknown(folder: Store) -> None:
    """The caller decides what that means."""
    place = Path(folder.url("loop"))
    place.parent.mkdir(parents=True)
    place.symlink_to(place)
    assert folder.is_locked("loop") is None


@pytest.mark.parametrize("lake", ["ftp://host/lake", "gs:/x", "file://host/lake", "file://lake", "file:///x?y=1", ""])
def test_a_place_that_is_no_local_folder_is_refused(lake: str) -> None:
    """The message says what is supported."""
    with pytest.raises(ConfigError, match=r"local folder|file:///"):
        open_store(lake)


@pytest.mark.parametrize(
    "lake", ["s3://user:word@bucket/x", "s3://bucket:9000/x", "s3:///x", "s3://bucket/a/../b", "s3://bucket/x?y=1"]
)
def test_a_place_in_an_object_store_that_is_none_is_refused(lake: str) -> None:
    """A place has no secrets and no server's address."""
    with pytest.raises(ConfigError, match=r"must|part"):
        open_store(lake)


def test_urls_are_those_that_spark_reads() -> None:
    """One bucket has several spellings."""
    assert open_store("s3://bucket/a/b/").url("c/d e") == "s3a://bucket/a/b/c/d e"
    assert open_store("s3a://bucket").url("") == "s3a://bucket"
    assert open_store("gs://bucket/a").url("x") == "gs://bucket/a/x"
    url = "abfss://box@account.dfs.core.windows.net/a"
    assert open_store(url).url("x") == f"{url}/x"


def test_file_urls_and_paths_name_the_same_folder() -> None:
    """Escapes of a URL are resolved; a colon in a path is no scheme."""
    assert local_folder("file:///srv/my%20lake") == Path("/srv/my lake")
    assert local_folder("lake:1") == Path("lake:1").absolute()


@pytest.mark.parametrize("source", ["views", "", "a/b", "..", "-x", "ä"])
def test_a_source_name_that_can_not_be_a_folder_is_refused(source: str) -> None:
    """`views` is taken."""
    with pytest.raises(ConfigError):
        SourceLake.open("/lake", source)


def test_paths_are_those_of_the_format_pages() -> None:
    """Someone else can find them."""
    lake = SourceLake.open("/lake", "shop")
    assert lake.paths.manifest(Incarnation(1), 7) == "shop/landing/000001/manifests/00000000000000000007.json"
    assert lake.paths.current(TableName("public", "order lines")) == "shop/current/public/order%20lines"
    assert lake.url(lake.paths.source_document) == "/lake/shop/source.json"
