"""Events on stderr: JSON lines for programs, one renewed line for people, never the end of the work."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading

from lakeproof.cli.progress import JsonProgress, TerminalProgress, progress
from lakeproof.events import Event
from lakeproof.lsn import Lsn
from lakeproof.names import TableName

FLUSH = Event("drain.flush", "5 rows", {"rows": 5, "end_lsn": "0/1"})


def test_a_file_gets_one_json_document_per_line() -> None:
    """A message with newlines still gives one line."""
    stream = io.StringIO()
    show = progress(stream)
    show(FLUSH)
    show(Event("a.b", "two\nlines \x1b[2J", {"table": TableName("a", "b"), "at": Lsn(1)}))
    show.close()
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["message"], first["fields"]) == (
        "drain.flush",
        "5 rows",
        {"rows": 5, "end_lsn": "0/1"},
    )
    assert first["at"].endswith("Z")
    assert second["fields"] == {"table": "a.b", "at": "0/1"}


def test_a_program_gets_progress_every_ten_seconds() -> None:
    """Progress events are limited per kind; every other event is written at once."""
    stream, now = io.StringIO(), [0.0]
    show = JsonProgress(stream, lambda: now[0])
    for second in range(21):
        now[0] = float(second)
        show(Event("compact.progress", str(second), {"fraction": 0.1}))
        show(Event("drain.progress", str(second)))
        show(Event("compact.cut", str(second)))
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    shown = {kind: [int(d["message"]) for d in lines if d["event"] == kind] for kind in {d["event"] for d in lines}}
    assert shown == {"compact.progress": [0, 10, 20], "drain.progress": [0, 10, 20], "compact.cut": list(range(21))}


def test_a_terminal_gets_one_line_per_kind() -> None:
    """The last event of a row of one kind stays."""
    stream = io.StringIO()
    show = TerminalProgress(stream)
    for message in ("5 rows", "6 rows"):
        show(Event("drain.flush", message))
    show(Event("drain.end", "done"))
    show.close()
    assert stream.getvalue() == "5 rows\r\x1b[K6 rows\ndone\n"


def test_a_terminal_shows_how_much_is_done_as_a_bar() -> None:
    """The bar redraws itself, and makes room for other messages."""
    stream = io.StringIO()
    show = TerminalProgress(stream)
    show(Event("bootstrap.slot", "slot"))
    for fraction in (0, 0.5, 1.0):
        show(Event("bootstrap.progress", "rows", {"fraction": fraction}))
    show(Event("bootstrap.table", "a table"))
    show.close()
    half, dots = "#" * 10, "." * 10
    assert stream.getvalue().split("\r\x1b[K") == [
        f"slot\n[{dots}{dots}]   0 %  rows",
        f"[{half}{dots}]  50 %  rows",
        f"[{half}{half}] 100 %  rows",
        "a table\n",
    ]


def test_a_terminal_line_never_wraps_and_never_moves_the_cursor() -> None:
    """Control characters become question marks."""
    stream = io.StringIO()
    TerminalProgress(stream)(Event("a", "\x1b[2J" + "x" * 5000))
    assert "\x1b" not in stream.getvalue()
    assert len(stream.getvalue()) < 1000


def test_closing_a_terminal_twice_writes_one_end() -> None:
    """No end is written if nothing was shown."""
    stream = io.StringIO()
    show = TerminalProgress(stream)
    show.close()
    show(FLUSH)
    show.close()
    show.close()
    assert stream.getvalue() == "5 rows\n"


def test_a_reader_that_has_gone_ends_nothing() -> None:
    """A drain goes on when its log is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    for show in (JsonProgress(stream), TerminalProgress(stream)):
        show(FLUSH)
        show.close()
    with contextlib.suppress(BrokenPipeError):
        stream.close()


def test_a_closed_stream_ends_nothing() -> None:
    """A stream that was closed in this process does not end the command either."""
    stream = io.StringIO()
    stream.close()
    JsonProgress(stream)(FLUSH)


def test_lines_of_several_threads_do_not_mix() -> None:
    """Each event is one whole line."""
    stream = io.StringIO()
    show = JsonProgress(stream)

    def work() -> None:
        for _ in range(200):
            show(FLUSH)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([json.loads(line) for line in stream.getvalue().splitlines()]) == 800
