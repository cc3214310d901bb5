"""A small S3 server in memory that adds a delay to each request, as a process: for measuring what requests cost a drain.

No test relies on it (`tests/support/stores/object_server.py` is another's server); it knows the requests of our own store
and no others: what Spark sends, it does not understand. It checks no signature.

    python -m bench.ingest.object_server PORT [--delay-ms 30]

`GET /-/counts` answers with the requests so far, by kind, and with the bytes that came and went.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

_READ_MAX = 32 << 20
_PAGE = 1000
_REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}


@dataclass(frozen=True)
class _Object:
    data: bytes
    tag: str
    written: float

    @classmethod
    def of(cls, data: bytes) -> _Object:
        return cls(data, f'"{hashlib.blake2b(data[:64], key=os.urandom(16), digest_size=16).hexdigest()}"', time.time())


@dataclass(frozen=True)
class _Request:
    method: str
    bucket: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> str:
        """The method, and the part of an upload that it is about."""
        if "uploadId" in self.query:
            return {"PUT": "part", "POST": "complete", "DELETE": "abort"}.get(self.method, self.method)
        if "uploads" in self.query:
            return "multipart"
        return "LIST" if self.method == "GET" and not self.key else self.method


@dataclass
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


_MISSING = _Answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
_REFUSED = _Answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")


class Server:
    """All buckets in one dictionary; one request changes it at a time, when its delay is over."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._objects: dict[tuple[str, str], _Object] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._counts: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            while (request := await _read(reader)) is not None:
                if request.bucket == "-":
                    answer = _Answer(body=json.dumps(self._counts).encode())
                else:
                    self._counts[request.kind] += 1
                    self._counts["bytes in"] += len(request.body)
                    await asyncio.sleep(self._delay_s)
                    answer = self._answer(request)
                    self._counts["bytes out"] += len(answer.body)
                length = answer.headers.pop("Content-Length", str(len(answer.body)))
                head = f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Length: {length}\r\n"
                head += "".join(f"{name}: {value}\r\n" for name, value in answer.headers.items())
                writer.write(head.encode() + b"\r\n")
                if request.method != "HEAD":
                    writer.write(answer.body)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    def _answer(self, request: _Request) -> _Answer:
        answers: dict[str, Callable[[_Request], _Answer]] = {
            "GET": self._get,
            "HEAD": self._get,
            "PUT": self._put,
            "DELETE": self._delete,
            "LIST": self._list,
            "multipart": self._begin,
            "part": self._part,
            "complete": self._complete,
            "abort": self._abort,
        }
        return answers[request.kind](request)

    def _get(self, request: _Request) -> _Answer:
        there = self._objects.get((request.bucket, request.key))
        if there is None:
            return _Answer(404, _MISSING.body)
        headers = {"ETag": there.tag, "Last-Modified": formatdate(there.written, usegmt=True)}
        size = len(there.data)
        if request.method == "HEAD":
            return _Answer(headers={**headers, "Content-Length": str(size)})
        span = request.headers.get("range")
        if span is None:
            return _Answer(body=there.data, headers=headers)
        first, _, last = span.removeprefix("bytes=").partition("-")
        start, end = int(first), min(size, int(last) + 1 if last else size)
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return _Answer(206, there.data[start:end], headers)

    def _put(self, request: _Request) -> _Answer:
        place = request.bucket, request.key
        there = self._objects.get(place)
        if request.headers.get("if-none-match") == "*" and there is not None:
            return _Answer(412, _REFUSED.body)
        version = request.headers.get("if-match")
        if version is not None and (there is None or there.tag != version):
            return _Answer(412, _REFUSED.body)
        self._objects[place] = new = _Object.of(request.body)
        return _Answer(headers={"ETag": new.tag})

    def _delete(self, request: _Request) -> _Answer:
        self._objects.pop((request.bucket, request.key), None)
        return _Answer(204)

    def _list(self, request: _Request) -> _Answer:
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        after = request.query.get("continuation-token") or request.query.get("start-after", "")
        names = sorted(k for b, k in self._objects if b == request.bucket and k.startswith(prefix) and k > after)
        folders, entries = [], []
        for name in names:
            folder, mark, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if mark:
                folders.append(f"{prefix}{folder}{mark}")
            else:
                entries.append(name)
        page, rest = entries[:_PAGE], entries[_PAGE:]
        body = "".join(self._entry(request.bucket, name) for name in page)
        body += "".join(
            f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in dict.fromkeys(folders)
        )
        body += f"<IsTruncated>{str(bool(rest)).lower()}</IsTruncated>"
        body += f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if rest else ""
        return _Answer(body=f"<ListBucketResult>{body}</ListBucketResult>".encode())

    def _entry(self, bucket: str, name: str) -> str:
        there = self._objects[bucket, name]
        written = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(there.written))
        return (
            f"<Contents><Key>{escape(name)}</Key><LastModified>{written}</LastModified><ETag>{escape(there.tag)}</ETag>"
            f"<Size>{len(there.data)}</Size></Contents>"
        )

    def _begin(self, request: _Request) -> _Answer:
        upload = f"upload-{len(self._uploads)}"
        self._uploads[upload] = {}
        return _Answer(
            body=f"<InitiateMultipartUploadResult><Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key>"
            f"<UploadId>{upload}</UploadId></InitiateMultipartUploadResult>".encode()
        )

    def _part(self, request: _Request) -> _Answer:
        self._uploads[request.query["uploadId"]][int(request.query["partNumber"])] = request.body
        return _Answer(headers={"ETag": f'"{request.query["partNumber"]}"'})

    def _complete(self, request: _Request) -> _Answer:
        parts = self._uploads[request.query["uploadId"]]
        new = _Object.of(b"".join(parts[number] for number in sorted(parts)))
        self._objects[request.bucket, request.key] = new
        return _Answer(
            body="<CompleteMultipartUploadResult><Location>x</Location>"
            f"<Bucket>{request.bucket}</Bucket><Key>{escape(request.key)}</Key><ETag>{escape(new.tag)}</ETag>"
            "</CompleteMultipartUploadResult>".encode()
        )

    def _abort(self, request: _Request) -> _Answer:
        self._uploads[request.query["uploadId"]] = {}
        return _Answer(204)


async def _read(reader: asyncio.StreamReader) -> _Request | None:
    """Return the next request, None at the connection's end."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
    return _Request(method, bucket, key, dict(parse_qsl(parts.query, keep_blank_values=True)), headers, body)


async def _serve(port: int, delay_s: float) -> None:
    listening = await asyncio.start_server(Server(delay_s).serve, "127.0.0.1", port, limit=_READ_MAX)
    async with listening:
        await listening.serve_forever()


def main() -> None:
    """Serve until killed."""
    parser = argparse.ArgumentParser(description="A small S3 server in memory that adds a delay to each request.")
    parser.add_argument("port", type=int)
    parser.add_argument("--delay-ms", type=float, default=0.0)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, options.delay_ms / 1000))


if __name__ == "__main__":
    main()
