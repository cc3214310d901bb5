"""The meaning of an error of Spark, Delta or their JVM: one line for people, and the tables that it concerns.

Reacting to it belongs to the callers; our own refusals in a Spark plan to `rows.refusal`.

A message of Spark's may contain values of rows: only its condition (or class) and the file that it names are reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from traceback import walk_tb
from typing import TYPE_CHECKING, TypeVar, cast
from urllib.parse import unquote

from lakeproof.errors import (
    InvariantError,
    LakeError,
    LakeproofError,
    NoRoomError,
    StoreRefusesError,
    TransientError,
    UnreadableRowsError,
)
from lakeproof.lake.spark.driver import (
    DriverLostError,
    connection_errors,
    how_ended,
    java_errors,
    spark_errors,
    why_lost,
)
from lakeproof.lake.spark_on_demand import NoSparkError
from lakeproof.storage.disk import is_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

F = TypeVar("F", bound=Callable[..., object])
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")
_CLASS = re.compile(r"\b(?:[a-z][\w$]*\.)+([A-Z][\w$]*(?:Exception|Error))\b")
_PARQUET = r"[^\s,;'\"]+?\.(?:parquet|bin)"
_FILE = re.compile(rf"file:(/{_PARQUET})|((?:s3a?|gs|abfss)://{_PARQUET})")
_FULL = ("No space left on device", "Disk quota exceeded")
# What executors kept went with them, more often than Spark repeats a stage for it. A task that fails again and again because
# its executor ends is not among these: it may be the table's rows.
_EXECUTORS_LOST = ("CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND", "Checkpoint block", "maximum allowable number of times")
_UNREADABLE = ("FAILED_READ_FILE", "CANNOT_READ_FILE_FOOTER", "is not a Parquet file", "DELTA_FILE_NOT_FOUND")
_CONCERNS_ALL = (*_FULL, *_EXECUTORS_LOST)
_EXECUTOR_ENDS = "ExecutorLostFailure"
# Of Amazon's SDK: its own words, and what S3A puts behind them.
_S3_STATUS = re.compile(r"Service: S3, Status Code: (\d{3})")
_S3_CODE = re.compile(r"Service: S3, Status Code: \d{3}[^)]*\)(?: \([^)]*\))*:([A-Z]\w{3,60})")
# A connection that ended in an answer, after S3A's own attempts: of an object that is too short all of it would have come.
_CUT_OFF = ("Premature end of Content-Length", "Unable to execute HTTP request", "failed to respond")
_OURS = __name__.partition(".")[0] + "."
_MORE_MEMORY = "give it more memory (`spark.driver_memory`)"


def reason_of(error: BaseException) -> str:
    """Return the reason in one line, without any value of a row."""
    if isinstance(error, LakeproofError):
        return f"{error.thing}: {error.reason}"
    if isinstance(error, OSError):
        file_name = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or type(error).__name__}{file_name}"
    if not isinstance(error, spark_errors()):
        return f"an error of lakeproof's own ({type(error).__name__}{_place_of(error)})"
    text = _text(error)
    if "OutOfMemoryError" in text:
        return f"Spark was out of memory; {_MORE_MEMORY}"
    if _EXECUTOR_ENDS in text:
        return "Spark's executors ended while they wrote it, most often for want of memory (`spark.executor.memory`)"
    file, conditions = unreadable_file(error), _CONDITION.findall(text)
    causes = [c for c in conditions if c.startswith(_UNREADABLE)] or conditions or _CLASS.findall(text)[-1:]
    cause = causes[0] if causes else type(error).__name__
    return f"Spark fails with {cause}" + (f" reading {file}" if file else "")


def _place_of(error: BaseException) -> str:
    """Return where it was raised: the innermost line of ours, which has no values, and without which nobody can mend it."""
    frames = [(str(frame.f_globals.get("__name__")), line) for frame, line in walk_tb(error.__traceback__)]
    ours = [f" in {module}, line {line}" for module, line in frames if module.startswith(_OURS)]
    return ours[-1] if ours else ""


def unreadable_file(error: BaseException) -> str | None:
    """Return the data file that could not be read, None for any other error."""
    if isinstance(error, UnreadableRowsError):
        return error.thing
    text = _text(error) if isinstance(error, spark_errors()) else ""
    if not any(mark in text for mark in _UNREADABLE) and "FileNotFoundException" not in text:
        return None
    match = _FILE.search(text)
    if match is None:
        return None
    return unquote(match[2] or "/" + match[1].lstrip("/"))


def concerns_all(error: BaseException) -> bool:
    """True if the error does not concern the table alone that was written: a lost race, a full disk, a refusing store."""
    if isinstance(error, TransientError | NoRoomError | StoreRefusesError | NoSparkError):
        return True
    if isinstance(error, OSError):
        return is_full(error)
    if store_refusal("", error) is not None:
        return True
    return isinstance(error, spark_errors()) and any(mark in _text(error) for mark in _CONCERNS_ALL)


def store_refusal(thing: str, error: BaseException) -> LakeproofError | None:
    """Return an error of ours about S3's answer to Spark, None if the error has none: it concerns no table alone.

    A missing file (404) is damage, and a condition that was not met (412) a lost race.
    """
    if not isinstance(error, java_errors()):
        return None
    text = _text(error)
    status = _S3_STATUS.search(text)
    if any(mark in text for mark in _CUT_OFF):
        reason = "a request of Spark's failed: the connection to the store was cut off"
        return TransientError(thing, reason, "nothing is lost; try again when the store answers")
    if status is None:
        return None
    # Imported here: a lake in a folder needs no client of object stores.
    from lakeproof.storage.object.errors import answered, busy

    word = _S3_CODE.search(text)
    action, number, code = "a request of Spark's", int(status[1]), "" if word is None else word[1]
    return answered(thing, action, number, code) or busy(thing, action, number, code)


def jvm_is_gone(session: SparkSession | None, error: BaseException) -> bool:
    """True if nothing more can be done in the session: its driver has ended, or has no memory left."""
    if session is None or not isinstance(error, spark_errors(OSError, EOFError)):
        return False
    return why_lost(session, error) is not None


@dataclass(slots=True)
class ReadAttempt:
    """The error that ended a `reading` block, None if it went through."""

    error: BaseException | None = None


@contextmanager
def reading(session: SparkSession | None, *others: type[BaseException]) -> Iterator[ReadAttempt]:
    """Keep an error of Spark's, or one of `others`, that is about the data read or written in the block; raise any other.

    A full disk, a lost race or a lost driver is not about the data. Use this before taking an error for damage.
    """
    attempt = ReadAttempt()
    try:
        yield attempt
    except java_errors(*others) as error:
        if concerns_all(error) or jvm_is_gone(session, error):
            raise
        attempt.error = error


def as_error(thing: str, error: BaseException) -> LakeproofError:
    """Return the same as an error of ours."""
    if isinstance(error, spark_errors()) and any(mark in _text(error) for mark in _FULL):
        return NoRoomError(thing, "writing it failed: no space left on device", "make room, then run it again")
    if isinstance(error, spark_errors()) and any(mark in _text(error) for mark in _EXECUTORS_LOST):
        return TransientError(thing, "executors were lost, with what they kept", "run it again")
    refusal = store_refusal(thing, error)
    if refusal is not None:
        return refusal
    if isinstance(error, connection_errors(OSError, EOFError)):
        end = how_ended()
        reason = "most often for want of memory" if end is None else end.reason
        remedy = "run it again" if end is not None and end.asked else f"run it again; {_MORE_MEMORY}"
        return DriverLostError(thing, f"the JVM ended while it was at work: {reason}", remedy)
    if isinstance(error, spark_errors()):
        return LakeError(thing, reason_of(error), "see that the lake is whole, and run it again with --debug")
    return InvariantError(thing, reason_of(error), "report this")


def without_java(thing: Callable[..., str]) -> Callable[[F], F]:
    """Return a decorator: an error of Spark or its JVM in the function is raised as an error of ours about `thing`.

    `thing` gets the function's arguments.
    """

    def decorate(function: F) -> F:
        @wraps(function)
        def called(*arguments: object, **named: object) -> object:
            try:
                return function(*arguments, **named)
            except spark_errors(ConnectionRefusedError, ConnectionResetError, BrokenPipeError) as error:
                raise as_error(thing(*arguments, **named), error) from error

        return cast("F", called)

    return decorate


def _text(error: BaseException) -> str:
    """Return the error's whole text; its class alone if its JVM can't be asked."""
    try:
        return str(error)
    except spark_errors(OSError, EOFError):
        return type(error).__name__
