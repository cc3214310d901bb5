"""The JVM of a process that was killed is ended by the next holder of its lease; that of a living one is left alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakeproof.errors import LakeError
from lakeproof.lake.records.lease import LeaseDoc, Process, hold_lease, process
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    """A process that stands for one."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as child:
        yield child
        child.kill()


def _lease(lake: Path, holder: Process, jvm: Process, host: str) -> None:
    data = LeaseDoc(1, "w", host, holder, jvm, "2026-01-01T00:00:00.000000Z").to_bytes()
    open_store(str(lake)).put_if_absent(LakePaths("shop").lease(1), data)


@pytest.mark.parametrize(("holder_lives", "here", "same", "ends"), [
    (False, True, True, True),
    (True, True, True, False),
    (False, False, True, False),
    (False, True, False, False),
])  # fmt: skip
def test_only_the_jvm_of_a_dead_holder_is_ended(
    tmp_path: Path, jvm: subprocess.Popen[bytes], *, holder_lives: bool, here: bool, same: bool, ends: bool
) -> None:
    """The holder ran on this host, and its number was not given to another process since."""
    actual, me = process(jvm.pid), process(os.getpid())
    assert actual is not None
    assert me is not None
    holder = me if holder_lives else Process(me.pid, me.started - 1)
    recorded = actual if same else Process(actual.pid, actual.started - 1)
    _lease(tmp_path, holder, recorded, socket.gethostname() if here else "elsewhere")
    with hold_lease(SourceLake.open(str(tmp_path), "shop")) as lease:
        assert lease.epoch == 2
    assert actual.lives is not ends


def test_a_damaged_lease_is_taken_anew_once_it_is_deleted(tmp_path: Path) -> None:
    """It names the JVM that may outlive its holder: nobody but a person knows now whether one does."""
    lake = SourceLake.open(str(tmp_path), "shop")
    with hold_lease(lake):
        pass
    lake.store.put(lake.paths.lease(1), b"{")
    with pytest.raises(LakeError, match=r"it is damaged: .* then delete this file"), hold_lease(lake):
        pass
    lake.store.delete(lake.paths.lease(1))
    with hold_lease(lake) as lease:
        assert lease.epoch == 1
