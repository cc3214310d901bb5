"""The lake's disk, or the one of the spill files, is full: one clear error, nothing acknowledged, and on when there is room.

The disk is a small tmpfs, which only root may mount.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.config.model import Config, SnapshotConfig, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.errors import NoRoomError
from lakeproof.landing.chain import verify_chain
from lakeproof.names import TableName
from tests.support.ingest.fix_drain import Drained, told_to_stop, wait_until
from tests.support.ingest.forked import Forked
from tests.support.servers.fix_postgres import Database

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk"),
]
ITEMS = TableName("public", "items")
LIMITS: dict[str, Any] = {"flush_interval_s": 0.05, "progress_interval_s": 0.1}
DISK_BYTES = 3 << 20


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("mounting is not permitted here")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@contextmanager
def _filled(disk: Path, left_bytes: int) -> Iterator[None]:
    """Fill the disk with a foreign file, but for `left_bytes`."""
    ballast = disk / "ballast"
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    ballast.write_bytes(b"\0" * max(0, free - left_bytes))
    try:
        yield
    finally:
        ballast.unlink()


def _wait_for_line(process: Forked, words: str) -> str:
    """The first line about it."""
    lines = [process.stderr.readline()]
    while words not in lines[-1]:
        assert lines[-1], "".join(lines)
        lines.append(process.stderr.readline())
    return lines[-1]


def _begun(database: Database, lake: Path) -> Drained:
    database.execute("CREATE PUBLICATION shop FOR ALL TABLES", "CREATE TABLE items (id int PRIMARY KEY, note text)")
    drained = Drained(database, lake)
    drained.begin()
    database.execute("INSERT INTO items VALUES (0, 'first')")
    drained.drain()
    return drained


# One transaction, incompressible: 2 MB as Parquet; and one that has room as it was sent.
_MUCH = "INSERT INTO items SELECT g, md5(g::text) || md5((-g)::text) FROM generate_series(1, 40000) g"
_SOME = "INSERT INTO items SELECT g, md5(g::text) || md5((-g)::text) FROM generate_series(1, 12000) g"


@pytest.mark.parametrize(
    "left_bytes", [64 << 10, pytest.param(0, marks=pytest.mark.full), pytest.param(1 << 20, marks=pytest.mark.full)]
)
def test_a_lasting_drain_waits_for_room_and_goes_on(database: Database, disk: Path, left_bytes: int) -> None:
    """Without room for a manifest, for a file's end, for its middle: what was durable stays, what came is sent again."""
    shop = _begun(database, disk / "lake")
    with shop.running("stopped", **LIMITS) as process:
        with _filled(disk, left_bytes):
            database.execute(_MUCH)
            assert str(disk / "lake") in _wait_for_line(process, "No space left on device")
            assert shop.confirmed_flush() <= shop.chain().end
            assert len(shop.folded()[ITEMS]) == 1
            assert process.poll() is None
        wait_until(lambda: len(shop.folded()[ITEMS]) == 40001)
        told_to_stop(process)
    chain = shop.chain()
    assert verify_chain(chain) == chain.next_number
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)
    named = {file.path.rpartition("/")[2] for manifest in chain.manifests() for file in manifest.files}
    assert {path.name for path in (disk / "lake").rglob("*.parquet")} == named


def test_a_drain_that_has_an_end_ends_with_one_error_that_names_the_disk(database: Database, disk: Path) -> None:
    """A position or a time: whoever gave it decides what next. The slot stands where the chain ends."""
    shop = _begun(database, disk / "lake")
    database.execute(_MUCH)
    with _filled(disk, 64 << 10):
        for until in (None, Until.seconds(60)):
            with pytest.raises(NoRoomError, match="No space left on device") as raised:
                shop.drain(until)
            assert str(disk / "lake") in raised.value.thing
            assert shop.confirmed_flush() == shop.chain().end
    shop.drain()
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)


@pytest.mark.parametrize(
    ("bytes_max", "reason"),
    [
        (0, "half of what was free); connecting again in"),
        pytest.param(DISK_BYTES, "No space left on device", marks=pytest.mark.full),
    ],
)
def test_a_spill_without_room_is_named_and_the_drain_goes_on_when_there_is(
    database: Database, disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, bytes_max: int, reason: str
) -> None:
    """The lake has room, the temporary folder has none; without a limit that is set, half of it is left to others."""
    shop = _begun(database, tmp_path / "lake")
    monkeypatch.setenv("TMPDIR", str(disk))
    with shop.running("stopped", spill_bytes=100_000, spill_bytes_max=bytes_max, **LIMITS) as process:
        with _filled(disk, 64 << 10):
            database.execute(_SOME)
            assert str(disk) in _wait_for_line(process, reason)
            assert len(shop.folded()[ITEMS]) == 1
            assert process.poll() is None
        wait_until(lambda: len(shop.folded()[ITEMS]) == 12001)
        told_to_stop(process)
    assert shop.folded()[ITEMS] == shop.source_rows(ITEMS)
    assert list(disk.iterdir()) == []


def test_a_bootstrap_without_room_leaves_nothing_that_counts(database: Database, disk: Path) -> None:
    """The bootstrap reports one error and leaves no visible snapshot; the next one, with room, goes on with its slot."""
    database.execute(
        "CREATE PUBLICATION pub FOR ALL TABLES", "CREATE TABLE items (id int PRIMARY KEY, note text)", _MUCH
    )
    lake = disk / "lake"
    source = SourceConfig(
        name="shop",
        dsn=SecretStr(database.dsn),
        publication="pub",
        slot=database.name,
        snapshot=SnapshotConfig(chunk_pages=64),
    )
    config = Config(path=lake / "lakeproof.yaml", lake=str(lake), sources={"shop": source})
    lake.mkdir()
    with _filled(disk, 256 << 10), pytest.raises(NoRoomError, match="No space left on device"):
        bootstrap(config, "shop")
    assert not list(lake.rglob("snapshot-*.json"))
    assert not list(lake.rglob("*.parquet"))
    assert database.slots() == {database.name}
    report = bootstrap(config, "shop")
    assert report.tables[ITEMS].rows == 40000
    assert database.slots() == {database.name}
