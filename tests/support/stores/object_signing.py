"""Signs a request to an S3 server that checks signatures, as the credentials of the tests.

Sending it belongs to `fix_object_store.py` and `object_proxy.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION = "eu-central-1"
ACCESS, SECRET = "lake", "secret"  # the environment's, in the tests
_LEFT_OUT = frozenset({"authorization", "x-amz-date", "x-amz-content-sha256", "content-length", "connection"})


def signed(method: str, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str]:
    """Return the headers with a signature of what is sent now."""
    kept = {name: value for name, value in headers.items() if name.lower() not in _LEFT_OUT}
    request = AWSRequest(method, url, kept, body)
    S3SigV4Auth(Credentials(ACCESS, SECRET), "s3", REGION).add_auth(request)
    return {name: str(value) for name, value in request.headers.items()}
