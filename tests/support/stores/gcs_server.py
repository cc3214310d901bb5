"""A server that speaks as Google's store, of the tests: the XML interface, as far as the store's client asks for it.

It is our reading of Google's manual and no software of theirs: it shows that our requests, keys and conditions fit together.
Starting it belongs to `fix_cloud_servers.py`. All is in memory; requests take turns, so of two conditional puts one wins.

    PUT object                         `x-goog-if-generation-match: N` (0: nothing is there), `x-goog-copy-source`
    POST ?uploads, PUT ?partNumber=N, POST ?uploadId=…, DELETE ?uploadId=…      a file in parts
    GET, HEAD, DELETE object           ranges; `x-goog-generation` and `ETag` in each answer
    GET bucket?list-type=2             `prefix`, `delimiter`, `start-after`, pages of 1,000
"""

from __future__ import annotations

import re
import sys
import threading
from dataclasses import dataclass, field
from datetime import datetime, timezone
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_PAGE = 1000
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass(frozen=True)
class _Object:
    data: bytes
    generation: int
    written: datetime = field(default_factory=lambda: datetime.now(timezone.utc))

    @property
    def headers(self) -> dict[str, str]:
        return {
            "ETag": f'"{self.generation:x}"',
            "x-goog-generation": str(self.generation),
            "Last-Modified": format_datetime(self.written, usegmt=True),
        }


class _Refused(Exception):  # noqa: N818  an answer, no error
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status, self.code = status, code


class Buckets:
    """The stored objects, and the uploads; each call is a request that has its turn."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._buckets: dict[str, dict[str, _Object]] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = count(1)

    def create(self, bucket: str) -> None:
        """Make a bucket."""
        self._buckets.setdefault(bucket, {})

    def get(self, bucket: str, key: str) -> _Object:
        """Return an object."""
        stored = self._of(bucket).get(key)
        if stored is None:
            raise _Refused(404, "NoSuchKey")
        return stored

    def put(self, bucket: str, key: str, data: bytes, condition: str | None) -> _Object:
        """Store an object if its generation is the condition's."""
        objects = self._of(bucket)
        before = objects.get(key)
        if condition is not None and int(condition) != (0 if before is None else before.generation):
            raise _Refused(412, "PreconditionFailed")
        objects[key] = _Object(data, next(self._numbers))
        return objects[key]

    def delete(self, bucket: str, key: str) -> None:
        """Remove an object."""
        self.get(bucket, key)
        del self._of(bucket)[key]

    def listed(self, bucket: str, asked: dict[str, str]) -> str:
        """Return a page of names."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter", "")
        after = asked.get("continuation-token") or asked.get("start-after", "")
        entries: dict[str, str] = {}
        for key, stored in sorted(self._of(bucket).items()):
            if not key.startswith(prefix) or key <= after:
                continue
            end = key.find(delimiter, len(prefix)) if delimiter else -1
            if end >= 0:
                folder = key[: end + 1]
                entries[folder] = f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            else:
                entries[key] = (
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{stored.written:%Y-%m-%dT%H:%M:%S.%fZ}</LastModified>"
                    f"<ETag>{stored.generation:x}</ETag><Size>{len(stored.data)}</Size></Contents>"
                )
            if len(entries) > _PAGE:
                break
        shown = list(entries)[:_PAGE]
        more = len(entries) > _PAGE
        token = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if more else ""
        parts = "".join(entries[name] for name in shown)
        truncated = f"<IsTruncated>{str(more).lower()}</IsTruncated>"
        return f"{_XML}<ListBucketResult>{truncated}{token}{parts}</ListBucketResult>"

    def upload(self, bucket: str, key: str) -> str:
        """Begin a file in parts."""
        self._of(bucket)
        name = str(next(self._numbers))
        self._uploads[name] = {}
        return (
            f"{_XML}<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
            f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
        )

    def part(self, upload: str, number: int, data: bytes) -> None:
        """Take a part."""
        self._parts(upload)[number] = data

    def complete(self, bucket: str, key: str, upload: str, order: list[int]) -> tuple[str, _Object]:
        """Make an object of the parts."""
        parts = self._parts(upload)
        stored = self.put(bucket, key, b"".join(parts[number] for number in order), None)
        del self._uploads[upload]
        return (
            f"{_XML}<CompleteMultipartUploadResult><ETag>{stored.generation:x}</ETag></CompleteMultipartUploadResult>",
            stored,
        )

    def abort(self, upload: str) -> None:
        """Forget the parts."""
        self._uploads.pop(upload, None)

    def _of(self, bucket: str) -> dict[str, _Object]:
        if bucket not in self._buckets:
            raise _Refused(404, "NoSuchBucket")
        return self._buckets[bucket]

    def _parts(self, upload: str) -> dict[int, bytes]:
        if upload not in self._uploads:
            raise _Refused(404, "NoSuchUpload")
        return self._uploads[upload]


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    buckets = Buckets()

    def handle_one_request(self) -> None:
        """Answer a request; a client that has gone ends the connection."""
        try:
            super().handle_one_request()
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path.lstrip("/")).partition("/")
        asked = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        try:
            with self.buckets.turn:
                status, headers, data = self._result(bucket, key, asked, body)
        except _Refused as refused:
            status, headers = refused.status, {}
            data = f"{_XML}<Error><Code>{refused.code}</Code></Error>".encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", headers.get("x-size") or str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815  the names that its base asks for

    def _result(self, bucket: str, key: str, asked: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        buckets, upload = self.buckets, asked.get("uploadId")
        if not key:
            return (200, {}, buckets.listed(bucket, asked).encode()) if self.command == "GET" else self._created(bucket)
        match self.command:
            case "GET" | "HEAD":
                return self._read(buckets.get(bucket, key))
            case "DELETE":
                if upload is None:
                    buckets.delete(bucket, key)
                else:
                    buckets.abort(upload)
                return 204, {}, b""
            case "POST":
                if upload is None:
                    return 200, {}, buckets.upload(bucket, key).encode()
                order = [int(number) for number in re.findall(rb"<PartNumber>(\d+)</PartNumber>", body)]
                text, stored = buckets.complete(bucket, key, upload, order)
                return 200, stored.headers, text.encode()
        if upload is not None:
            buckets.part(upload, int(asked["partNumber"]), body)
            return 200, {"ETag": f'"{asked["partNumber"]}"'}, b""
        source = self.headers.get("x-goog-copy-source")
        if source is not None:
            from_bucket, _, from_key = unquote(source.lstrip("/")).partition("/")
            body = buckets.get(from_bucket, from_key).data
        return 200, buckets.put(bucket, key, body, self.headers.get("x-goog-if-generation-match")).headers, b""

    def _created(self, bucket: str) -> tuple[int, dict[str, str], bytes]:
        self.buckets.create(bucket)
        return 200, {}, b""

    def _read(self, stored: _Object) -> tuple[int, dict[str, str], bytes]:
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        size = len(stored.data)
        if span is None:
            return 200, {**stored.headers, "x-size": str(size)}, stored.data
        first, last = int(span[1]), min(int(span[2] or size - 1), size - 1)
        if first >= size:
            raise _Refused(416, "InvalidRange")
        data = stored.data[first : last + 1]
        return 206, {**stored.headers, "Content-Range": f"bytes {first}-{last}/{size}"}, data

    def log_message(self, *_: object) -> None:
        """Print nothing."""


def main() -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    server.daemon_threads = True
    server.serve_forever()


if __name__ == "__main__":
    main()
