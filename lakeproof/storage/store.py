"""The small interface through which manifests, cycle documents and landing files become durable.

Implementations do not belong here (a local folder: `local.py`), nor do paths (`paths.py`).
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
    """A `put_if_absent` or `create` met something else under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NotFoundError(Exception):
    """Nothing is stored under the key; `key` names it."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class NewFile(Protocol):
    """A large file on its way into a store: a binary file object that counts and digests what is written.

    After `finish` its contents are durable; its name is durable after `Store.sync_names` with its key.
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
        """True after `finish` or `abandon`."""

    def write(self, data: bytes) -> int:
        """Append `data` and return the number of bytes."""

    def flush(self) -> None:
        """Write the buffer of this process to the file."""

    def finish(self) -> None:
        """Make the contents durable and close the file."""

    def abandon(self) -> None:
        """Close and remove the file; may be called at any time, also after `finish`."""


class Store(Protocol):
    """Bytes under keys (`a/b/c`, relative to the lake). A put is durable when the method returns.

    Keys whose last part begins with a dot are the store's own and never listed.
    """

    def put_if_absent(self, key: str, data: bytes) -> None:
        """Store `data` completely or not at all; raise AlreadyExistsError if the key has something else.

        If the key has these very bytes, that is success: a store may have done it and lost the answer. So a document
        that only one writer may put contains something of that writer's.
        """

    def put(self, key: str, data: bytes) -> None:
        """Store `data`, replacing the old bytes in one step."""

    def get(self, key: str) -> bytes:
        """Return the stored bytes; raise NotFoundError."""

    def exists(self, key: str) -> bool:
        """True if something is stored under the key."""

    def size(self, key: str) -> int:
        """Return the number of stored bytes; raise NotFoundError."""

    def folders(self, prefix: str) -> list[str]:
        """Return the names (not keys) of the folders right below `prefix`, sorted."""

    def delete(self, key: str) -> None:
        """Remove the key; a missing key is no error."""

    def create(self, key: str) -> NewFile:
        """Begin a large file; raise AlreadyExistsError if the key is taken."""

    def sync_names(self, keys: Iterable[str]) -> None:
        """Make the names of finished files durable, all at once."""

    def publish(self, local: Path, key: str) -> None:
        """Move a finished local file to `key`, durably.

        Raises AlreadyExistsError if the key is taken; `local` then stays.
        """

    def open(self, key: str) -> BinaryIO:
        """Open for reading with seek; raise NotFoundError. The caller closes it."""

    def url(self, key: str) -> str:
        """Return the absolute path or URL under which Spark and pyarrow find the key."""

    def sweep(self, prefix: str, older_than_s: float) -> int:
        """Remove the leftovers of interrupted puts right below `prefix`, if that old; return their number."""

    def list(self, prefix: str) -> list[str]:
        """Return every key below the folder `prefix`, sorted; empty if there is none."""


def make_root(lake: str | Path) -> Path:
    """Return the lake's folder, created for this user alone if it is missing; an existing one keeps its mode."""
    root = local_folder(lake)
    if not root.is_dir():
        root.parent.mkdir(parents=True, exist_ok=True)
        root.mkdir(mode=0o700, exist_ok=True)
    return root


def local_folder(lake: str | Path) -> Path:
    """Return the absolute folder that `lake` names; raise ConfigError for any other scheme than file."""
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
