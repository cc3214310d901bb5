"""A table is tried twice, or three times when nobody knows how an attempt ended; then it is held, and the count goes."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from lakeproof.errors import LakeError, NoRoomError, TableError, TransientError
from lakeproof.lake.cycle.attempts import AttemptsError, earlier_attempts, tried
from lakeproof.lake.cycle.task import CycleTable
from lakeproof.lake.records.documents import NO_ROWS, CycleKind, Intent
from lakeproof.lake.records.lease import Lease, hold_lease
from lakeproof.lake.spark.failures import reason_of, unreadable_file
from lakeproof.lake.spark_on_demand import SparkOnDemand
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, TableName
from lakeproof.storage.source_lake import SourceLake

TABLE = TableName("public", "a" * 63)


class Killed(BaseException):
    """The process is gone."""


@pytest.fixture
def lease(tmp_path: Path) -> Iterator[Lease]:
    """Return the lease of an empty lake."""
    with hold_lease(SourceLake.open(str(tmp_path), "shop")) as held:
        yield held


def intent(number: int = 7) -> Intent:
    """Return the intent of an empty cycle."""
    position = Lsn(16)
    return Intent(
        CycleNumber(number),
        CycleKind.APPLY,
        Incarnation(1),
        position,
        position,
        (),
        0,
        NO_ROWS,
        {},
        {},
        1,
        "w",
        "2026-11-22T00:00:00Z",
    )


def _no_session() -> NoReturn:
    pytest.fail("nobody asks for a session")


def run(lease: Lease, once: Callable[..., str], number: int = 7, session: Any = None) -> str:
    """The steps of a process that comes to this cycle."""
    earlier = earlier_attempts(lease, intent(number)).get(TABLE, [])
    spark = SparkOnDemand(_no_session) if session is None else SparkOnDemand.of(session)
    return tried(spark, CycleTable(lease, intent(number), TABLE), earlier, once)


def run_killed(lease: Lease) -> None:
    """The same, killed while it writes: its documents are what they were then."""
    left: dict[str, bytes] = {}

    def once(*, from_scratch: bool) -> str:
        left.update({key: lease.lake.store.get(key) for key in lease.lake.store.list(lease.lake.paths.attempts)})
        raise Killed

    with pytest.raises(Killed):
        run(lease, once)
    for key, data in left.items():
        lease.lake.store.put(key, data)


def dead_session(number: int = 0) -> Any:
    """As much of a session as is asked for, whose JVM has ended, by itself or by a signal."""
    process = subprocess.Popen(["sleep", "60" if number else "0"])
    if number:
        process.send_signal(number)
    process.wait()
    return SimpleNamespace(sparkContext=SimpleNamespace(master="local[1]", _gateway=SimpleNamespace(proc=process)))


def failing(*errors: BaseException) -> Callable[..., str]:
    """Raise these, one after the other; then return "from scratch" or "done"."""
    left = list(errors)

    def once(*, from_scratch: bool) -> str:
        if left:
            raise left.pop(0)
        return "from scratch" if from_scratch else "done"

    return once


def test_an_error_is_tried_again_at_once_from_the_start(lease: Lease) -> None:
    """The count is gone when the cycle is done."""
    assert run(lease, failing()) == "done"
    assert run(lease, failing(RuntimeError("a row's value"))) == "from scratch"
    assert lease.lake.store.list(lease.lake.paths.attempts) == []


def test_two_failures_are_enough_by_any_counter(lease: Lease) -> None:
    """The reason is the last one's, and has no value in it."""
    with pytest.raises(AttemptsError, match=r"2 times: /x: damaged$|2 times: /x: damaged;") as raised:
        run(lease, failing(RuntimeError("a row's value"), LakeError("/x", "damaged", "mend it")))
    assert "value" not in str(raised.value)
    with pytest.raises(AttemptsError, match="2 times"):
        run(lease, failing())
    assert run(lease, failing(), number=8) == "done", "another cycle begins to count again"
    assert lease.lake.store.list(lease.lake.paths.attempts) == []


@pytest.mark.parametrize(
    "error",
    [TableError("t", "refused", "mend it"), TransientError("t", "lost", "again"), NoRoomError("t", "full", "make room"),
     OSError(28, "No space left on device"), KeyboardInterrupt()],
)  # fmt: skip
def test_what_is_no_failure_of_the_table_counts_for_nothing(lease: Lease, error: BaseException) -> None:
    """Such errors may repeat without limit."""
    for _ in range(3):
        with pytest.raises(type(error)):
            run(lease, failing(error))
        assert lease.lake.store.list(lease.lake.paths.attempts) == []


def test_three_that_ended_without_a_word_are_enough(lease: Lease) -> None:
    """A process that is killed takes nothing back."""
    for _ in range(3):
        run_killed(lease)
    with pytest.raises(AttemptsError, match="3 times: the process ended while it was written"):
        run(lease, failing())


def test_a_jvm_that_ends_is_reported_once_and_counted(lease: Lease) -> None:
    """Nothing more can be done in that process; the next one counts on."""
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            run(lease, failing(ConnectionRefusedError()), session=dead_session())
    with pytest.raises(AttemptsError, match="the JVM ended while it was written: its process has ended with status 0"):
        run(lease, failing())


def test_a_jvm_that_was_asked_to_end_counts_for_nothing(lease: Lease) -> None:
    """Somebody ended it, or the system that shuts down: the table is not held for it, however often that happens."""
    for _ in range(3):
        with pytest.raises(ConnectionRefusedError):
            run(lease, failing(ConnectionRefusedError()), session=dead_session(signal.SIGTERM))
        assert lease.lake.store.list(lease.lake.paths.attempts) == []
    assert run(lease, failing()) == "done"


def test_a_jvm_that_was_killed_counts_as_a_process_that_was(lease: Lease) -> None:
    """The kernel may have done it for want of memory, or anybody: three times are enough, and two are not."""
    for _ in range(2):
        with pytest.raises(ConnectionRefusedError):
            run(lease, failing(ConnectionRefusedError()), session=dead_session(signal.SIGKILL))
    with pytest.raises(ConnectionRefusedError):
        run(lease, failing(ConnectionRefusedError()), session=dead_session(signal.SIGKILL))
    with pytest.raises(AttemptsError, match="or its JVM was killed"):
        run(lease, failing())


def test_reasons_have_no_values() -> None:
    """A foreign error is recorded by its class and the line of ours that it came through."""
    assert reason_of(ValueError("secret")) == "an error of lakeproof's own (ValueError)"
    with pytest.raises(ValueError, match="secret") as caught:
        Lsn.parse("secret")
    words = r"an error of lakeproof's own \(ValueError in lakeproof\.lsn, line \d+\)"
    assert re.fullmatch(words, reason_of(caught.value))
    assert reason_of(FileNotFoundError(2, "No such file", "/x")) == "No such file (/x)"
    assert unreadable_file(ValueError("FAILED_READ_FILE file:/x")) is None


def test_a_killed_attempt_does_not_count_against_the_table(lease: Lease) -> None:
    """A snapshot's entry goes on as it was; only when it ends so again does it read nothing of what is there."""
    run_killed(lease)
    assert run(lease, failing()) == "done"
    for _ in range(2):
        run_killed(lease)
    assert run(lease, failing()) == "from scratch"


def test_a_failure_beside_a_kill_is_one_of_three(lease: Lease) -> None:
    """Both causes are reported."""
    for _ in range(2):
        run_killed(lease)
    message = "3 times: /x: damaged; 2 of them ended with the process, without a word"
    with pytest.raises(AttemptsError, match=message):
        run(lease, failing(LakeError("/x", "damaged", "mend it")))


def test_a_damaged_attempt_counts_for_nothing(lease: Lease) -> None:
    """It is of one table, and no reason to write none of the source."""
    run_killed(lease)
    (key,) = lease.lake.store.list(lease.lake.paths.attempts)
    lease.lake.store.put(key, b"{")
    assert run(lease, lambda **_: "written") == "written"
    assert lease.lake.store.list(lease.lake.paths.attempts) == []
