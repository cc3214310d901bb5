"""Credentials of an AWS profile: static keys, a process, and what is missing, against files as AWS writes them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from lakeproof.errors import ConfigError
from lakeproof.storage.object.client import ProfileCredentials
from tests.support.stores.fix_object_store import S3Server, object_store
from tests.support.stores.object_signing import ACCESS, SECRET

WORDS = "hush-hush"


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the AWS files."""
    for name, file in (("AWS_CONFIG_FILE", "config"), ("AWS_SHARED_CREDENTIALS_FILE", "credentials")):
        monkeypatch.setenv(name, str(tmp_path / file))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_static_keys_are_read_again(aws: Path) -> None:
    """Whoever renews credentials writes them into the file."""
    credentials = ProfileCredentials("lake")
    for token in ("one", "two"):
        (aws / "credentials").write_text(
            f"[lake]\naws_access_key_id = a\naws_secret_access_key = {WORDS}\naws_session_token = {token}\n"
        )
        actual = credentials()
        assert (actual["access_key_id"], actual["secret_access_key"], actual.get("token")) == ("a", WORDS, token)


def test_a_process_gives_credentials_with_their_end(aws: Path) -> None:
    """As single sign-on tools do."""
    answer = {"Version": 1, "AccessKeyId": "a", "SecretAccessKey": WORDS, "Expiration": "2030-01-02T03:04:05Z"}
    script = aws / "give.py"
    script.write_text(f"print({json.dumps(json.dumps(answer))})")
    (aws / "config").write_text(f"[profile lake]\ncredential_process = {sys.executable} {script}\n")
    actual = ProfileCredentials("lake")()
    assert str(actual["expires_at"]) == "2030-01-02 03:04:05+00:00"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ("", "there is no such profile"),
        ("[profile lake]\nregion = x\n", "neither keys nor a credential_process"),
        ("[profile lake]\ncredential_process = /no/such/program\n", "its credential_process failed"),
        (f"[profile lake]\ncredential_process = echo {WORDS}\n", "its credential_process failed"),
        (f"no section {WORDS}\n", "can't be read as an AWS file"),
    ],
)
def test_what_is_missing_is_named_without_a_secret(aws: Path, config: str, text: str) -> None:
    """The error names the profile, and repeats nothing of the files."""
    (aws / "config").write_text(config)
    with pytest.raises(ConfigError, match=text) as raised:
        ProfileCredentials("lake")()
    assert "storage.profile lake" in str(raised.value)
    assert WORDS not in str(raised.value)


def test_a_store_takes_its_profile(bucket: str, aws: Path, s3_server: S3Server) -> None:
    """The configuration names it, and the environment has no keys."""
    (aws / "credentials").write_text(f"[lake]\naws_access_key_id = {ACCESS}\naws_secret_access_key = {SECRET}\n")
    store = object_store(bucket, s3_server.endpoint, profile="lake")
    store.put_if_absent("a", b"x")
    assert store.get("a") == b"x"
    with pytest.raises(ConfigError, match="there is no such profile"):
        object_store(bucket, s3_server.endpoint, profile="none").get("a")
