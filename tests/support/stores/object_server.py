"""The S3 server of the tests, as a process: moto on the port that is given, one request after the other.

Starting it belongs to `fix_object_store.py`. moto checks a condition first and writes then: of 600 keys that eight writers
created at the same moment, six had two winners. A store that tests rely on must not do that, so requests take turns here.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple

_Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class InTurn:
    """An application that gets a request when it has come whole, and the one before it has been answered."""

    def __init__(self, application: _Application) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH")
        if length:
            body = environ["wsgi.input"].read(int(length))
            if len(body) != int(length):
                # Half of an upload is none.
                start_response("400 Bad Request", [("Content-Length", "0")])
                return [b""]
            environ["wsgi.input"] = io.BytesIO(body)
        with self._turn:
            return [b"".join(self._application(environ, start_response))]


def main() -> None:
    """Serve until killed."""
    application = InTurn(DomainDispatcherApplication(create_backend_app))
    run_simple("127.0.0.1", int(sys.argv[1]), application, threaded=True)


if __name__ == "__main__":
    main()
