"""Turns an object store's answers into our errors: of a kind that passes by itself, or that a person must mend.

Repeating a request does not belong here (`requests.py`). Nothing of an answer is repeated but its status and code:
the rest may have keys of an account.
"""

from __future__ import annotations

import re

from obstore.exceptions import AlreadyExistsError, PreconditionError

from lakeproof.errors import LakeError, LakeproofError, StoreRefusesError, TransientError

_STATUS = re.compile(r"status code: (\d{3})|status: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>|\"(?:code|reason)\": ?\"(\w+)\"")
_REGION = re.compile(r"<Region>([a-z0-9-]+)</Region>|expecting '([a-z0-9-]+)'")
_CONFLICT = 409
# Azure's answer to a create of a key that is there.
_TAKEN = frozenset({"BlobAlreadyExists"})
_AGAIN = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"})
_WRONG_KEYS = frozenset({"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidSecurity"})
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "InvalidBucketName"})
# The library follows no redirection to another region.
_REDIRECT = re.compile(r"redirect without LOCATION")
_OTHER_REGION = frozenset({"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
# What the library says if nobody gives it credentials, and it asks a machine's metadata that there is none of.
_NO_CREDENTIALS = re.compile(
    r"169\.254\.169\.254|metadata\.google\.internal|instance metadata|credential", re.IGNORECASE
)
_LATER = "nothing is lost; try again when the store answers"
_ASK = "give it credentials that may list, get, put and delete below the lake's prefix"


def status_of(error: Exception) -> int | None:
    """Return the HTTP status of the store's answer, None if there was no answer."""
    match = _STATUS.search(str(error))
    return None if match is None else int(match[1] or match[2])


def code_of(error: Exception) -> str:
    """Return the store's own code of an error, empty if it gave none."""
    match = _CODE.search(str(error))
    return "" if match is None else match[1] or match[2]


def is_missing(error: Exception) -> bool:
    """True if the key is missing, and not its bucket."""
    return isinstance(error, FileNotFoundError) and code_of(error) not in _NO_BUCKET


def is_refused_condition(error: Exception) -> bool:
    """True if the store says that the condition of a put was not met.

    The library takes every 409 for that. S3 says so if two writers came at once, and then neither may have won.
    """
    if status_of(error) == _CONFLICT and code_of(error) not in _TAKEN:
        return False
    return isinstance(error, AlreadyExistsError | PreconditionError)


def passes(error: Exception) -> bool:
    """True if the same request may succeed a moment later."""
    status = status_of(error)
    if status is None:
        # No answer: a broken connection, a timeout. Without credentials the library asks elsewhere, for long enough.
        is_final = _NO_CREDENTIALS.search(str(error)) or _REDIRECT.search(str(error))
        return not is_final and not isinstance(error, ValueError | TypeError)
    return status in _AGAIN


def store_error(error: Exception, thing: str, action: str) -> LakeproofError:
    """Return the error that `action` (e.g. "putting it") failed, as one of ours."""
    status, code = status_of(error), code_of(error)
    if (isinstance(error, FileNotFoundError) and code != "NoSuchKey") and code not in _EXPIRED:
        code = "NoSuchBucket"
    if _REDIRECT.search(str(error)):
        code = "PermanentRedirect"
    region = _REGION.search(str(error))
    refusal = answered(thing, action, status, code, region[1] or region[2] if region else None)
    if refusal is not None:
        return refusal
    answer = f"{status} {code}".strip() if status is not None else "no answer"
    reason = f"{action} failed: the store gave {answer}"
    if passes(error):
        return TransientError(thing, reason, _LATER)
    if status is None and _NO_CREDENTIALS.search(str(error)):
        # A role's credentials may be late, too: whoever waits asks again.
        return TransientError(thing, f"{action} failed: there are no credentials for it", _ASK)
    return LakeError(thing, reason, "see to the store, then start again")


def answered(
    thing: str, action: str, status: int | None, code: str, region: str | None = None
) -> LakeproofError | None:
    """Return our error for a store's status and code, None if they say nothing that a person could mend or wait for."""
    if code in _EXPIRED:
        reason = f"{action} failed: the credentials have expired ({code})"
        return TransientError(thing, reason, "renew them; nothing is lost, and a lasting drain goes on by itself")
    if code in _NO_BUCKET:
        return StoreRefusesError(
            thing, f"{action} failed: its bucket does not exist", "create the bucket, or correct `lake`"
        )
    if code in _OTHER_REGION:
        named = f" ({region})" if region else ""
        return StoreRefusesError(
            thing, f"{action} failed: its bucket is in another region{named}", "correct `storage.region`"
        )
    if code == "RequestTimeTooSkewed":
        return StoreRefusesError(
            thing, f"{action} failed: this machine's clock is off", "set the clock, then start again"
        )
    if code in _WRONG_KEYS:
        return StoreRefusesError(thing, f"{action} failed: the store does not know these credentials ({code})", _ASK)
    if status in (401, 403):
        return StoreRefusesError(thing, f"{action} is not permitted ({status} {code})".replace(" )", ")"), _ASK)
    return None


def busy(thing: str, action: str, status: int | None, code: str) -> TransientError | None:
    """Return the error of a request that may succeed later, None for any other answer."""
    if status not in _AGAIN:
        return None
    return TransientError(thing, f"{action} failed: the store gave {status} {code}".strip(), _LATER)
