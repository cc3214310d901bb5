"""The one spelling of a time in documents: ISO 8601 in UTC with six decimals and a Z."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def now_text() -> str:
    """Return the present time for `created_at`."""
    return text_of_time(datetime.now(timezone.utc))


def time_of(text: str) -> datetime:
    """Return the time of a document's text; Python 3.10 does not read the Z."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def time_text(us: int) -> str:
    """Return the text of microseconds since 1970."""
    return text_of_time(_EPOCH + timedelta(microseconds=us))


def time_us(text: str) -> int:
    """Do the inverse of `time_text`; raise ValueError for any other text."""
    if not _TIME.fullmatch(text):
        raise ValueError(f"not a time: {text[:40]!r}")
    since = datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=timezone.utc) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def text_of_time(time: datetime) -> str:
    """Return a time in UTC as documents have it."""
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
