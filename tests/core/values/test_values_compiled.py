"""Compiled loops: one set of argument types each, a cache if one can be written, and nothing if nothing is decoded."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from numba.core import caching
from numba.core.dispatcher import Dispatcher

from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.pgoutput.warm_up import warm_up_decoder
from lakeproof.values.compiled import compiled
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import Workload, resolve

ROOT = Path(__file__).resolve().parents[3]


def loops() -> dict[str, Dispatcher]:
    """Every compiled loop that is loaded."""
    modules = [module for name, module in sys.modules.items() if name.startswith("lakeproof.")]
    return {
        f"{actual.py_func.__module__}.{actual.py_func.__name__}": actual
        for module in modules
        for actual in vars(module).values()
        if isinstance(actual, Dispatcher)
    }


def test_a_loop_is_compiled_for_one_set_of_argument_types() -> None:
    """Two processes that compile at once then write the same bytes into the same file."""
    warm_up_decoder()
    existing = {name for name, loop in loops().items() if loop.signatures}
    workload = Workload(random.Random(3))
    messages = [message for _ in range(20) for message in workload.transaction(20)]
    BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(frames(*messages)))
    assert {name: loop.signatures for name, loop in loops().items() if len(loop.signatures) > 1} == {}
    # What a stream calls has been called by the warm-up.
    assert {name for name, loop in loops().items() if loop.signatures and name not in existing} == set()
    assert len(existing) > 10


def test_without_a_folder_to_write_loops_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation that is read-only, and a user without a home."""
    monkeypatch.setattr(caching.CacheImpl, "_locator_classes", [])  # inside: numba finds root a folder anywhere

    @compiled
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42


def test_what_does_not_decode_does_not_load_the_compiler() -> None:
    """The command line and the drain's own module, before a stream begins."""
    code = "import sys, lakeproof.cli.main, lakeproof.commands.drain; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.full
def test_a_damaged_cache_is_one_error_with_its_remedy(tmp_path: Path) -> None:
    """A power cut may leave the file's name without its bytes."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    code = (
        "import sys, pathlib; from lakeproof.values.parse import times as loops; import numpy as np\n"
        "args = np.frombuffer(b'2000-01-01', np.uint8), np.zeros(1, np.int32), np.full(1, 10, np.int32)\n"
        "loops.parse_days(*args, np.zeros(1, np.int32))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False).returncode == 0
    for index in tmp_path.rglob("*parse_days*.nbi"):
        index.write_bytes(index.read_bytes()[:-20])
    failing = "from lakeproof.pgoutput.warm_up import warm_up_decoder; warm_up_decoder()"
    done = subprocess.run(
        [sys.executable, "-c", failing], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert "compiled loops: they can't be loaded" in done.stderr


@pytest.mark.full
def test_processes_that_compile_at_once_leave_a_cache_that_works(tmp_path: Path) -> None:
    """Three processes start on an empty folder, and a fourth on their result."""
    code = "from lakeproof.pgoutput.warm_up import warm_up_decoder; warm_up_decoder()"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    started = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment) for _ in range(3)]
    assert [process.wait(120) for process in started] == [0, 0, 0]
    result = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb[ci]")}
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb[ci]")} == result != {}
