"""Times the decoding of a batch of pgoutput to Arrow, by kind of column, against the row-wise decoder in the same run.

It uses no server and no files: it generates the messages. Measuring the drain as a whole does not belong here
(`bench/ingest/drain.py`). `Arrow MB` is the size of the resulting batch, `RSS MB` the growth of the process meanwhile (the
joined frames, the positions of transactions, the batch).

    python -m bench.ingest.decoder [--changes 100000] [--per-transaction 100]
"""

from __future__ import annotations

import argparse
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakeproof.lsn import Lsn
from lakeproof.names import Oid, Xid
from lakeproof.pgoutput.batch import BatchDecoder
from lakeproof.pgoutput.decoder import decode
from lakeproof.pgoutput.message_buffer import MessageBuffer
from lakeproof.pgoutput.messages import (
    Begin,
    Commit,
    Insert,
    Message,
    OldImage,
    Relation,
    RelationColumn,
    Update,
    Values,
)
from lakeproof.pgoutput.relations import RelationCache
from lakeproof.schema import Identity
from tests.core.pgoutput.pgoutput_encoder import frames
from tests.core.pgoutput.pgoutput_random import KIND_OIDS, NUMERIC_TYPMOD, resolve
from tests.core.pgoutput.pgoutput_reference import assemble

TABLE = Oid(16384)
TIME_US = 1_700_000_000_000_000
REPEATS = 5
# The row-wise decoder takes seconds where the fast path takes tenths; its speed per change does not depend on their number.
SLOW_SHARE = 10

MIXED = ("int4", "int8", "text", "numeric", "timestamptz", "bool", "float8", "varchar")
NOT_ASCII, INFINITE = "4 text, not ASCII", "4 date, some infinite"
CASES: dict[str, tuple[str, ...]] = {
    "8 mixed": MIXED,
    "8 mixed, FULL updates": MIXED,
    **{f"4 {kind}": (kind,) * 4 for kind in ("bool", "int2", "int4", "int8", "float4", "float8", "numeric", "bytea")},
    **{f"4 {kind}": (kind,) * 4 for kind in ("date", "timestamp", "timestamptz", "uuid", "enum", "name")},
    **{f"4 {kind}": (kind,) * 4 for kind in ("text", "bpchar", "varchar", "exact_text")},
    NOT_ASCII: ("text",) * 4,
    INFINITE: ("date",) * 4,
}

VALUES: dict[str, Callable[[random.Random], str]] = {
    "bool": lambda rng: rng.choice("tf"),
    "int2": lambda rng: str(rng.randrange(2**15)),
    "int4": lambda rng: str(rng.randrange(2**31)),
    "int8": lambda rng: str(rng.randrange(2**53)),
    "float4": lambda rng: f"{rng.random():.6}",
    "float8": lambda rng: str(rng.random()),
    "numeric": lambda rng: f"{rng.randrange(10**6)}.{rng.randrange(100):02}",
    "enum": lambda rng: rng.choice(["new", "paid", "sent"]),
    "name": lambda rng: f"table_{rng.randrange(100)}",
    "bpchar": lambda rng: f"{rng.randrange(10**6):<10}",
    "text": lambda rng: f"a customer's name {rng.randrange(10**6)}",
    "varchar": lambda rng: rng.choice(["new", "paid", "sent"]),
    "uuid": lambda rng: f"{rng.getrandbits(128):032x}",
    "bytea": lambda rng: "\\x" + rng.randbytes(16).hex(),
    "date": lambda rng: f"2024-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}",
    "timestamp": lambda rng: (
        f"2024-07-{rng.randrange(1, 29):02} 12:{rng.randrange(60):02}:30.{rng.randrange(10**6):06}"
    ),
    "timestamptz": lambda rng: VALUES["timestamp"](rng) + "+00",
    "exact_text": lambda rng: f'{{"a": {rng.randrange(10**6)}}}',
}
# Kinds that leave the fast path, or half of it: bytes that must be checked as UTF-8, and texts that the caster checks.
UNUSUAL: dict[str, Callable[[random.Random], str]] = {
    NOT_ASCII: lambda rng: f"größe {rng.randrange(10**6)}",
    INFINITE: lambda rng: "infinity" if rng.random() < 0.01 else VALUES["date"](rng),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """Wall and CPU seconds for `changes` changes."""

    changes: int
    wall_s: float
    cpu_s: float

    @property
    def speed(self) -> float:
        """Return changes per second of wall time."""
        return self.changes / self.wall_s

    def times(self, other: Measured) -> float:
        """Return the ratio of changes per second of CPU, which a busy machine distorts least."""
        return (other.cpu_s / other.changes) / (self.cpu_s / self.changes)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; each case runs in its own process, so that its peak memory can be measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--changes", type=int, default=100_000)
    parser.add_argument("--per-transaction", type=int, default=100)
    parser.add_argument("--case", help="run this case only, in this process")
    options = parser.parse_args(arguments)
    if options.case is not None:
        print(_line(options.case, options.changes, options.per_transaction))
        return
    print(f"{options.changes} changes, {options.per_transaction} per transaction, best of {REPEATS}, one process each")
    heads = (
        ("B/change", 9),
        ("changes/s", 11),
        ("CPU s/M", 9),
        ("x decode", 10),
        ("x twin", 8),
        ("Arrow MB", 10),
        ("RSS MB", 8),
    )
    print(f"{'columns':24}" + "".join(f"{head:>{width}}" for head, width in (*heads, ("of frames", 11))))
    for case in CASES:
        command = [sys.executable, "-m", "bench.ingest.decoder", "--case", case, "--changes", str(options.changes)]
        command += ["--per-transaction", str(options.per_transaction)]
        sys.stdout.write(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        sys.stdout.flush()


def _line(case: str, changes: int, per_transaction: int) -> str:
    full = "FULL" in case
    rng = random.Random(1)
    few = frames(*_stream(case, changes // SLOW_SHARE, per_transaction, rng, full=full))
    raw = frames(*_stream(case, changes, per_transaction, rng, full=full))
    octets = sum(map(len, raw))
    wire = MessageBuffer.of(raw)
    BatchDecoder(RelationCache(resolve)).decode(MessageBuffer.of(few))  # Arrow's pools and tables, once per process
    before_mb = _peak_mb()
    fast = _measure(lambda: BatchDecoder(RelationCache(resolve)).decode(wire), changes)
    used_mb = _peak_mb() - before_mb
    batch = BatchDecoder(RelationCache(resolve)).decode(wire)
    arrow_mb = sum(table.rows.nbytes for table in batch.changes) / 2**20
    plain = _measure(lambda: [decode(one[25:]) for one in few], changes // SLOW_SHARE)
    twin = _measure(lambda: assemble(few, RelationCache(resolve)), changes // SLOW_SHARE)
    return (
        f"{case:24}{octets / changes:9.0f}{fast.speed:11,.0f}{fast.cpu_s / changes * 1e6:9.2f}"
        f"{fast.times(plain):10.1f}{fast.times(twin):8.1f}{arrow_mb:10.1f}{used_mb:8.0f}{used_mb * 2**20 / octets:11.1f}"
    )


def _measure(work: Callable[[], object], changes: int) -> Measured:
    best: Measured | None = None
    for _ in range(REPEATS):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        measured = Measured(changes, time.perf_counter() - wall, time.process_time() - cpu)
        if best is None or measured.wall_s < best.wall_s:
            best = measured
    if best is None:
        raise ValueError("nothing was measured; pass at least one change")
    return best


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _stream(case: str, changes: int, per_transaction: int, rng: random.Random, *, full: bool) -> list[Message]:
    kinds = CASES[case]
    columns = tuple(
        RelationColumn(f"c{i}", Oid(KIND_OIDS[kind]), NUMERIC_TYPMOD if kind == "numeric" else -1, i == 0)
        for i, kind in enumerate(kinds)
    )
    relation = Relation(TABLE, "public", "t", Identity.FULL if full else Identity.DEFAULT, columns)
    # Rows come from a pool: generating them must not take longer than the measured work.
    pool: list[Values] = [tuple((UNUSUAL.get(case) or VALUES[kind])(rng) for kind in kinds) for _ in range(2000)]
    messages: list[Message] = []
    for start in range(0, changes, per_transaction):
        lsn = Lsn(1 << 30 | start * 100)
        messages.append(Begin(lsn, TIME_US + start, Xid(start + 3)))
        if start == 0:
            messages.append(relation)
        messages += [_change(pool, rng, full=full) for _ in range(min(per_transaction, changes - start))]
        messages.append(Commit(lsn, Lsn(lsn.value + 50), TIME_US + start))
    return messages


def _change(pool: list[Values], rng: random.Random, *, full: bool) -> Message:
    if full:
        return Update(TABLE, OldImage.ROW, rng.choice(pool), rng.choice(pool))
    if rng.random() < 0.5:
        return Insert(TABLE, rng.choice(pool))
    return Update(TABLE, None, None, rng.choice(pool))


if __name__ == "__main__":
    main()
