"""A power cut, simulated: what may be on the disk when the machine comes back, at every fsync of what is watched.

What is checked of such a state belongs to the tests. A kill is not simulated here: after it everything written is there.

    with PowerCut(folder) as cut:                 # what is in the folder now counts as durable
        ...                                       # the code under test writes below the folder, with fsyncs in this process
        cut.mark(position)                        # something was promised to somebody: later moments know of it
    for state in cut.states(random.Random(seed), limit=40):
        state.build(somewhere)                    # the folder as it may be found; state.marks is what had been promised

What POSIX allows after a power cut, and so what is built:

    a file's bytes     as they were at its last fsync; or, written since: as they are, cut short, empty, or zeros
    a folder's names   each as it was at the folder's last fsync, or as it was seen at any time since: there, not there, or
                       another file, each name for itself

A moment is right before an fsync takes effect, and at the end; what may be found after a sync may be found before the next.
Where a moment has few states all are built, else the extremes, each single difference from them, and a random sample.

The folder is looked at, not the calls that change it: so whoever else writes into it (a JVM) is seen too, at the next fsync
or `look` of this process. A name that came and went between two looks is not.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import random
import resource
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from typing_extensions import Self

# What a name stands for: a file by its number here, a folder, or nothing.
FOLDER, NOTHING = -1, -2
Value: TypeAlias = int
# A name below the watched folder, or the contents of a file.
Place: TypeAlias = "tuple[str, str] | int"


@dataclass(slots=True)
class _File:
    """An inode. It is kept open, so that its number is not given to another file."""

    descriptor: int
    stamp: tuple[int, int] = (-1, -1)
    data: bytes = b""
    synced: bytes | None = None

    def look(self, actual: os.stat_result) -> None:
        stamp = (actual.st_size, actual.st_mtime_ns)
        if stamp != self.stamp:
            self.stamp = stamp
            self.data = os.pread(self.descriptor, actual.st_size + 1, 0)

    def sync(self) -> None:
        self.synced = self.data

    def options(self) -> tuple[bytes, ...]:
        """The contents that it may have, the oldest first."""
        if self.synced == self.data:
            return (self.data,)
        half = self.data[: len(self.data) // 2]
        return tuple(dict.fromkeys((self.synced or b"", b"", bytes(len(self.data)), half, self.data)))


@dataclass(slots=True)
class _Folder:
    """The names in a folder: `synced` at its last fsync, `seen` every value of each name since, the newest last."""

    synced: dict[str, Value] = field(default_factory=dict)
    seen: dict[str, dict[Value, None]] = field(default_factory=dict)

    def look(self, now: Mapping[str, Value]) -> None:
        for name in {*now, *self.seen, *self.synced}:
            values = self.seen.setdefault(name, {self.synced.get(name, NOTHING): None})
            newest = now.get(name, NOTHING)
            values.pop(newest, None)
            values[newest] = None

    def sync(self) -> None:
        self.synced = {name: newest for name, values in self.seen.items() if (newest := list(values)[-1]) != NOTHING}
        self.seen = {name: {value: None} for name, value in self.synced.items()}


@dataclass(frozen=True)
class State:
    """A state that the disk may be in: `chosen` is the outcome of each name and file that was uncertain."""

    moment: Moment
    chosen: tuple[int, ...]

    @property
    def marks(self) -> tuple[Any, ...]:
        """The promises made by then."""
        return self.moment.marks

    def tree(self) -> dict[str, bytes | None]:
        """The files with their bytes, and the folders, None, by their paths below the watched folder."""
        picked = dict(zip(self.moment.uncertain, self.chosen, strict=True))
        tree: dict[str, bytes | None] = {}
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            for name, values in self.moment.names.get(folder, {}).items():
                value = values[picked.get((folder, name), 0)]
                path = f"{folder}/{name}".lstrip("/")
                if value == FOLDER:
                    tree[path] = None
                    waiting.append(path)
                elif value != NOTHING:
                    tree[path] = self.moment.contents[value][picked.get(value, 0)]
        return tree

    def build(self, folder: Path) -> Path:
        """Write it into a folder that is made for it."""
        folder.mkdir(parents=True)
        for path, data in sorted(self.tree().items()):
            if data is None:
                (folder / path).mkdir()
            else:
                (folder / path).write_bytes(data)
        return folder

    def __str__(self) -> str:
        return f"moment {self.moment.number} ({self.moment.what}), chosen {self.chosen} of {self.moment.uncertain}"


@dataclass(frozen=True)
class Moment:
    """Right before an fsync of `what`: the possible values of each name and the possible bytes of each file."""

    number: int
    what: str
    marks: tuple[Any, ...]
    names: Mapping[str, Mapping[str, tuple[Value, ...]]]
    contents: Mapping[int, tuple[bytes, ...]]

    @property
    def uncertain(self) -> list[Place]:
        """The files that have more than one possible content."""
        names: list[Place] = [(f, n) for f, all_ in self.names.items() for n, values in all_.items() if len(values) > 1]
        return names + [number for number, options in self.contents.items() if len(options) > 1]

    def states(self, rng: random.Random, limit: int) -> Iterator[State]:
        """Yield all states if they are at most `limit`, else some."""
        counts = [len(self.contents[p]) if isinstance(p, int) else len(self.names[p[0]][p[1]]) for p in self.uncertain]
        total = 1
        for count in counts:
            total *= count
        if total <= limit:
            yield from (State(self, chosen) for chosen in itertools.product(*map(range, counts)))
            return
        oldest, newest = [0] * len(counts), [count - 1 for count in counts]
        chosen = [tuple(oldest), tuple(newest)]
        for base in (newest, oldest):
            for position, count in enumerate(counts):
                chosen += [(*base[:position], option, *base[position + 1 :]) for option in range(count)]
        chosen = list(dict.fromkeys(chosen))
        if len(chosen) > limit:
            chosen = chosen[:2] + rng.sample(chosen[2:], max(0, limit - 2))
        while len(chosen) < limit:
            chosen.append(tuple(rng.randrange(count) for count in counts))
        yield from (State(self, one) for one in dict.fromkeys(chosen))


class PowerCut:
    """Watches everything below `root`, which has to exist, from `__enter__` to `__exit__`. One at a time in a process."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.moments: list[Moment] = []
        self._marks: list[Any] = []
        self._files: list[_File] = []
        self._by_inode: dict[tuple[int, int], int] = {}
        self._folders: dict[str, _Folder] = {}
        self._lock = threading.RLock()
        self._real: dict[str, Callable[..., None]] = {}

    def __enter__(self) -> Self:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 65_536)), hard))
        self._sync_everything()
        for name in ("fsync", "fdatasync"):
            self._real[name] = getattr(os, name)
            setattr(os, name, self._fsync)
        return self

    def __exit__(self, *_: object) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        with self._lock:
            self._moment("the end")
            for file in self._files:
                os.close(file.descriptor)

    def mark(self, what: Any) -> None:
        """Something was promised: every later moment has it among its `marks`."""
        with self._lock:
            self._marks.append(what)

    def look(self) -> None:
        """See what has been written by now: names that are about to go, by somebody who does not sync."""
        with self._lock:
            self._look()

    def states(self, rng: random.Random, limit: int) -> Iterator[State]:
        """The states of all moments, at most `limit` of each, none twice with the same promises."""
        existing: set[bytes] = set()
        for moment in self.moments:
            for state in moment.states(rng, limit):
                digest = hashlib.sha256(repr((sorted(state.tree().items()), state.marks)).encode()).digest()
                if digest not in existing:
                    existing.add(digest)
                    yield state

    def _fsync(self, descriptor: int | Any) -> None:
        number = descriptor if isinstance(descriptor, int) else descriptor.fileno()
        place = Path(f"/proc/self/fd/{number}").readlink()
        with self._lock:
            if place != self.root and self.root not in place.parents:
                # It may come in under another name.
                if place.is_file():
                    self._files[self._file(place)].sync()
                return
            path = str(place.relative_to(self.root)) if place != self.root else ""
            self._moment(path or ".")
            if place.is_dir():
                self._folders[path].sync()
            elif place.is_file():
                self._files[self._file(place)].sync()

    def _moment(self, what: str) -> None:
        self._look()
        names = {
            path: {name: tuple(values) for name, values in folder.seen.items()}
            for path, folder in self._folders.items()
        }
        used = {v for of in names.values() for values in of.values() for v in values if v >= 0}
        contents = {number: self._files[number].options() for number in used}
        self.moments.append(Moment(len(self.moments), what, tuple(self._marks), names, contents))

    def _sync_everything(self) -> None:
        self._look()
        for folder in self._folders.values():
            folder.sync()
        for file in self._files:
            file.sync()

    def _look(self) -> None:
        waiting = [""]
        there: set[str] = set()
        while waiting:
            path = waiting.pop()
            there.add(path)
            now: dict[str, Value] = {}
            with os.scandir(self.root / path) as entries:
                for entry in entries:
                    # It may be gone by now.
                    with suppress(FileNotFoundError):
                        if entry.is_dir(follow_symlinks=False):
                            now[entry.name] = FOLDER
                            waiting.append(f"{path}/{entry.name}".lstrip("/"))
                        else:
                            now[entry.name] = self._file(Path(entry.path))
            self._folders.setdefault(path, _Folder()).look(now)
        for path in self._folders.keys() - there:
            self._folders[path].look({})

    def _file(self, path: Path) -> int:
        actual = path.stat()
        key = (actual.st_dev, actual.st_ino)
        if key not in self._by_inode:
            self._by_inode[key] = len(self._files)
            self._files.append(_File(os.open(path, os.O_RDONLY | os.O_CLOEXEC)))
        number = self._by_inode[key]
        self._files[number].look(actual)
        return number
