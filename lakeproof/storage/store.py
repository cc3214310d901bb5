"""The small interface through which manifests, cycle documents and landing files become durable.

How a make does it (a local folder: `local.py`) does not belong here; neither do paths (`lake_paths.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import unquote, urlsplit

from lakeproof.errors import ConfigError

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(?=/)")
_SUPPORTED = "a local folder, or a file:// URL"


class AlreadyExistsError(Exception):
    """A `put_if_absent` or `create` found something else under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NotFoundError(Exception):
    """Nothing is stored under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NewFile(Protocol):
    """A large file on its way into a store: a binary file object that counts and digests what passes.

    After `finish` its contents are durable; its name is once `Store.settle` has been told the key.
    """

    key: str

    @property
    def bytes_written(self) -> int:
        """Bytes so far."""

    @property
    def sha256(self) -> str:
        """64 hexadecimal digits over the bytes so far."""

    @property
    def closed(self) -> bool:
        """Whether `finish` or `abandon` was called."""

    def write(self, data: bytes) -> int:
        """Append; gives the number of bytes."""

    def flush(self) -> None:
        """Pass on what is buffered in this process."""

    def finish(self) -> None:
        """Make the contents durable and let go of the file."""

    def abandon(self) -> None:
        """Let go of the file and remove it; may be called at any time, also after `finish`."""


class Store(Protocol):
    """Bytes under keys (`a/b/c`, relative to the lake). What a method has put is durable when it returns.

    Keys whose last part begins with a dot are the store's own and never listed.
    """

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store `data` wholly or not at all; raises AlreadyExistsError where something else has the key.

        Where these very bytes have it, that is success: a store may have done it and lost the answer. So what only one
        writer may put has something of that writer's in it.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing what was there in one step."""

    def get(self, key: str) -> bytes:
        """The stored bytes; raises NotFoundError."""

    def exists(self, key: str) -> bool:
        """Whether something is stored under the key."""

    def size(self, key: str) -> int:
        """Its bytes; raises NotFoundError."""

    def folders(self, prefix: str) -> list[str]:
        """The names (not keys) of the folders right below `prefix`, sorted."""

    def delete(self, key: str) -> None:
        """Remove it; nothing happens where it is not there."""

    def create(self, key: str) -> NewFile:
        """Begin a large file; raises AlreadyExistsError where the key is taken."""

    def settle(self, keys: Iterable[str]) -> None:
        """Make the names of finished files durable, all at once."""

    def publish(self, local: Path, key: str) -> None:
        """Bring a finished local file in under `key`, durably, and remove it from where it was.

        Raises AlreadyExistsError where the key is taken; `local` then stays.
        """

    def open(self, key: str) -> BinaryIO:
        """Open for reading with seek; raises NotFoundError. The caller closes it."""

    def url(self, key: str) -> str:
        """The absolute path or URL under which Spark and pyarrow find the key."""

    def sweep(self, prefix: str, older_than_s: float) -> int:
        """Remove what interrupted puts right below `prefix` left behind, if that old; gives how many."""

    def list(self, prefix: str) -> list[str]:
        """Every key below the folder `prefix`, sorted; empty where there is none."""


def make_root(lake: str | Path) -> Path:
    """Return the lake's folder, made for this user alone if it is not there; one that exists keeps its mode."""
    root = local_folder(lake)
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    return root


def local_folder(lake: str | Path) -> Path:
    """The absolute folder that `lake` names; raises ConfigError for any other scheme than file."""
    text = str(lake)
    match = _SCHEME.match(text)
    if match is None:
        if not text:
            raise ConfigError("lake", "the place of the lake is empty", f"give {_SUPPORTED}")
        return Path(text).expanduser().absolute()
    parts = urlsplit(text)
    if match[1].lower() != "file":
        raise ConfigError("lake", f"the URL scheme {match[1]!r} is not supported", f"give {_SUPPORTED}")
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise ConfigError("lake", "the file URL does not name an absolute local folder", "write file:///path/to/lake")
    return Path(unquote(parts.path))
