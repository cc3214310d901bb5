"""The demonstration's processes end with it, however it ends, and a killed one's left-overs are found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from demo.processes import Children, left_over_processes
from demo.state import DemoError, State, open_state
from tests.support.ingest.fix_drain import wait_until

ROOT = Path(__file__).resolve().parents[3]


def _names(pids: list[int]) -> list[str]:
    """Return the command line of each process that is left."""
    names = []
    for pid in pids:
        # It may end while it is looked at.
        with suppress(OSError):
            names.append(Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip())
    return names


def _end(state: State) -> None:
    state.remove_server()
    state.close()


def _demonstration(state: Path, body: str) -> subprocess.Popen[bytes]:
    """Its own process that starts children as the demonstration does, then says so and waits."""
    program = (
        "import sys, time; from pathlib import Path; from demo.processes import Children; import os\n"
        "state = Path(sys.argv[1]); children = Children(state)\n"
        f"{body}\n"
        "(state / 'ready').touch(); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(state)], cwd=ROOT)
    wait_until((state / "ready").exists)
    return process


def test_stop_ends_children_and_their_children_even_if_they_refuse(tmp_path: Path) -> None:
    """A grandchild that ignores SIGTERM is in the same group."""
    children = Children(tmp_path, grace_s=0.5)
    script = f"trap '' TERM; (trap '' TERM; sleep 60) & touch {tmp_path}/ready; wait; sleep 60"
    children.start("stubborn", ["/bin/sh", "-c", script], os.environ)
    wait_until((tmp_path / "ready").exists)
    assert len(left_over_processes(tmp_path)) >= 2
    children.stop()
    assert left_over_processes(tmp_path) == []


def test_a_child_that_ended_is_named_with_its_log(tmp_path: Path) -> None:
    """The demonstration shows the last lines of its part's log."""
    children = Children(tmp_path)
    children.start("short", ["/bin/sh", "-c", "echo that was all; exit 3"], os.environ).wait()
    assert children.ended() == "short"
    assert children.log_tail("short") == "that was all"
    children.stop()


def test_children_end_with_a_demonstration_that_was_killed(tmp_path: Path) -> None:
    """The kernel sends them a signal (PR_SET_PDEATHSIG)."""
    process = _demonstration(tmp_path, "children.start('sleep', ['sleep', '600'], os.environ)")
    assert len(left_over_processes(tmp_path)) == 1
    process.send_signal(signal.SIGKILL)
    process.wait()
    wait_until(lambda: not left_over_processes(tmp_path))


def test_what_a_killed_demonstration_left_is_ended_by_the_next(tmp_path: Path) -> None:
    """A grandchild in its own session hears nothing from the kernel; its environment carries the mark."""
    process = _demonstration(tmp_path, "children.start('far', ['setsid', '--fork', 'sleep', '60'], os.environ)")
    # Not before it is out of the demonstration's reach: in its own session, and its parent gone.
    wait_until(lambda: _names(left_over_processes(tmp_path)) == ["sleep"])
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(left_over_processes(tmp_path)) == 1
    state, actual = open_state(tmp_path)
    _end(state)
    assert actual == ["ended 1 processes of a demonstration that was killed"]
    assert left_over_processes(tmp_path) == []


def test_a_second_demonstration_is_refused_with_the_running_process(tmp_path: Path) -> None:
    """Demonstrations share a folder, so a checkout runs one at a time."""
    first, _ = open_state(tmp_path)
    with pytest.raises(DemoError, match=f"process {os.getpid()}"):
        open_state(tmp_path)
    _end(first)


def test_every_demonstration_begins_with_an_empty_folder(tmp_path: Path) -> None:
    """Nothing of an earlier lake can pass for this one's."""
    first, _ = open_state(tmp_path)
    (first.root / "lake").mkdir()
    (first.root / "lake" / "old").touch()
    _end(first)
    second, _ = open_state(tmp_path)
    assert {path.name for path in second.root.iterdir()} - {"server"} == {"lock", "server.folder"}
    _end(second)


@pytest.mark.skipif(os.geteuid() != 0, reason="another user's PostgreSQL only for root")
def test_the_cluster_goes_elsewhere_if_its_user_cant_reach_the_checkout(tmp_path: Path) -> None:
    """A checkout under a private folder (0700)."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    state, _ = open_state(private / "state")
    assert not state.server.is_relative_to(private)
    _end(state)
    assert not state.server.exists()
