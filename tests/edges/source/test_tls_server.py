"""A server that speaks TLS: who it is, who we are, and what a password is not sent to.

The embedded PostgreSQL 18 is built without TLS, so this is 17. That both roads bring the same bytes is in
`test_encrypted_connection.py`.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from demo.server import EmbeddedPostgres, unprivileged_user
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_source
from lakeproof.commands.drain import drain
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.errors import SourceError, TransientError
from lakeproof.postgres.connections.connect import connect, connect_replication
from lakeproof.postgres.connections.security import is_exposed
from scripts.fetch.servers import fetch

pytestmark = [pytest.mark.postgres, pytest.mark.slow]

_HBA = """\
hostssl all with_certificate all cert
hostssl all all all scram-sha-256
"""


@dataclass(frozen=True)
class Tls:
    """A server with a certificate for localhost, and the folder with the CA's and a client's."""

    server: EmbeddedPostgres
    folder: Path

    def dsn(self, **parts: Any) -> SecretStr:
        """Return a DSN of the superuser by name, with full verification by default."""
        given = {
            "host": "localhost",
            "port": self.server.port,
            "dbname": "postgres",
            "user": "postgres",
            "password": self.server.password,
            "sslmode": "verify-full",
            "sslrootcert": str(self.folder / "ca.crt"),
            **parts,
        }
        return SecretStr(make_conninfo(**{k: v for k, v in given.items() if v is not None}))


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    """The server; only TLS connections are let in."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates; it is not installed")
    folder = tmp_path_factory.mktemp("tls")
    _certificates(folder)
    conf = {
        "ssl": "on",
        "ssl_cert_file": "server.crt",
        "ssl_key_file": "server.key",
        "ssl_ca_file": "ca.crt",
        "fsync": "off",
    }
    server = EmbeddedPostgres(install=fetch(17))
    server.start()
    server.halt()
    for name in ("ca.crt", "server.crt", "server.key"):
        shutil.copy(folder / name, server.data / name)
    (server.data / "pg_hba.conf").write_text(_HBA, encoding="utf-8")
    user = unprivileged_user()
    for name in ("ca.crt", "server.crt", "server.key"):
        (server.data / name).chmod(0o600)
        if user is not None:
            os.chown(server.data / name, user.pw_uid, user.pw_gid)
    server.conf = conf
    with server:
        result = Tls(server, folder)
        with psycopg.connect(result.dsn().get_secret_value(), autocommit=True) as admin:
            admin.execute("CREATE ROLE with_certificate LOGIN REPLICATION")
        yield result


def _certificates(folder: Path) -> None:
    """A CA, another one, the server's certificate and a client's."""

    def openssl(*arguments: str) -> None:
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=folder)

    for name in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout",
                f"{name}.key", "-out", f"{name}.crt")  # fmt: skip
    (folder / "names").write_text("subjectAltName=DNS:localhost", encoding="utf-8")
    for name, subject in (("server", "localhost"), ("client", "with_certificate")):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={subject}", "-keyout", f"{name}.key", "-out",
                f"{name}.csr")  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days",
                "2", "-extfile", "names", "-out", f"{name}.crt")  # fmt: skip
        (folder / f"{name}.key").chmod(0o600)


def test_a_table_is_copied_and_followed_over_a_verified_connection(tls: Tls, tmp_path: Path) -> None:
    """SCRAM is bound to the channel, so a machine in the middle could not pass it on."""
    with psycopg.connect(tls.dsn().get_secret_value(), autocommit=True) as admin:
        admin.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        admin.execute("INSERT INTO t SELECT g, repeat('x', g) FROM generate_series(1, 500) g")
        admin.execute("CREATE PUBLICATION pub FOR TABLE t")
        source = SourceConfig(name="shop", dsn=tls.dsn(channel_binding="require"), publication="pub", slot="shop")
        config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
        report = check_source(config, "shop")
        assert not [finding for finding in report.findings if "in the clear" in str(finding)]
        copied = bootstrap(config, "shop")
        assert sum(table.rows for table in copied.tables.values()) == 500
        admin.execute("UPDATE t SET v = 'y' WHERE id <= 40")
        admin.execute("DELETE FROM t WHERE id > 490")
        done = drain(config, "shop", Until.caught_up())
        assert [(counts.updates, counts.deletes) for counts in done.tables.values()] == [(40, 10)]


def test_a_drain_does_not_pause_for_each_message(tls: Tls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walsender makes a TLS record of each message. Seen once: a pause after each, 20 times as long as in the clear."""
    rows, pauses = 5_000, 0

    def counted(seconds: float) -> None:
        nonlocal pauses
        pauses += 1
        sleep(seconds)

    with psycopg.connect(tls.dsn().get_secret_value(), autocommit=True) as admin:
        admin.execute("CREATE TABLE many (id int PRIMARY KEY)")
        admin.execute("CREATE PUBLICATION many FOR TABLE many")
        source = SourceConfig(name="many", dsn=tls.dsn(), publication="many", slot="many")
        config = Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources={"many": source})
        bootstrap(config, "many")
        admin.execute("INSERT INTO many SELECT generate_series(1, %s)", [rows])
        sleep = time.sleep
        # inside: pauses are counted, since a time would depend on the machine
        monkeypatch.setattr(time, "sleep", counted)
        done = drain(config, "many", Until.caught_up())
    assert sum(counts.inserts for counts in done.tables.values()) == rows
    assert pauses < rows / 5, pauses


def test_a_role_comes_in_by_its_certificate(tls: Tls) -> None:
    """Works on ordinary and on replication connections; without a certificate the error names what is missing."""
    keys = {"sslcert": str(tls.folder / "client.crt"), "sslkey": str(tls.folder / "client.key")}
    dsn = tls.dsn(user="with_certificate", password=None, **keys)
    for open_one in (connect, connect_replication):
        with open_one(dsn) as conn:
            assert conn.pgconn.ssl_in_use
            assert not is_exposed(conn)
    with pytest.raises(SourceError, match="sslcert="):
        connect(tls.dsn(user="with_certificate", password=None, sslcert="/nonexistent", sslkey="/nonexistent"))


@pytest.mark.parametrize(
    ("parts", "remedy"),
    [
        ({"sslrootcert": "other.crt"}, "sslrootcert="),
        ({"sslrootcert": "missing.crt"}, "sslrootcert="),
        ({"host": None, "hostaddr": "127.0.0.1"}, "."),
        ({"host": "127.0.0.1"}, "as its certificate does"),
        ({"sslmode": "disable"}, "pg_hba.conf"),
    ],
)
def test_a_server_that_is_not_the_one_meant_is_refused_with_the_remedy(
    tls: Tls, parts: dict[str, Any], remedy: str
) -> None:
    """The refusal comes before a password or a row has been sent."""
    if "sslrootcert" in parts:
        parts = {"sslrootcert": str(tls.folder / parts["sslrootcert"])}
    with pytest.raises(SourceError) as refused:
        connect(tls.dsn(**parts))
    assert remedy in str(refused.value)
    assert tls.server.password not in str(refused.value)


def _ask_for_password(listener: socket.socket, heard: list[bytes]) -> None:
    """Answer as a server without TLS that wants the password in the clear."""
    client, _ = listener.accept()
    with client:
        while True:
            (length,) = struct.unpack("!I", client.recv(4, socket.MSG_WAITALL))
            (code,) = struct.unpack("!I", client.recv(length - 4, socket.MSG_WAITALL)[:4])
            if code != 80877103:
                break
            client.sendall(b"N")
        client.sendall(b"R" + struct.pack("!II", 8, 3))
        client.settimeout(5)
        heard.append(client.recv(1 << 10))


def test_no_password_goes_in_the_clear_to_a_server_that_asks_for_it() -> None:
    """Only the DSN can allow it."""
    secret = "S3cr3t-p@ss"
    for more, sent in ({}, False), ({"require_auth": "password"}, True):
        heard: list[bytes] = []
        with socket.create_server(("127.0.0.1", 0)) as listener:
            thread = threading.Thread(target=_ask_for_password, args=(listener, heard))
            thread.start()
            port = listener.getsockname()[1]
            dsn = make_conninfo(host="127.0.0.1", port=port, user="u", dbname="d", password=secret, **more)
            with pytest.raises((SourceError, TransientError)) as refused:
                connect(SecretStr(dsn))
            thread.join()
        assert (secret.encode() in heard[0]) is sent
        assert secret not in str(refused.value)
        if not sent:
            assert "sslmode=verify-full" in str(refused.value)


@pytest.mark.parametrize(
    ("encrypted", "host", "address", "exposed"),
    [
        (False, "db.example.org", "10.0.0.5", True),
        (False, "db.example.org", "fe80::1%eth0", True),
        (True, "db.example.org", "10.0.0.5", False),
        (False, "localhost", "127.0.0.1", False),
        (False, "localhost", "::1", False),
        (False, "/var/run/postgresql", "", False),
        (False, "", "", False),
    ],
)
def test_what_travels_in_the_clear_to_another_machine_is_exposed(
    encrypted: bool, host: str, address: str, exposed: bool
) -> None:
    """`check` and `status` say so. Tests have no other machine, so the connection is described."""
    described = SimpleNamespace(
        pgconn=SimpleNamespace(ssl_in_use=encrypted), info=SimpleNamespace(host=host, hostaddr=address)
    )
    assert is_exposed(cast("Any", described)) is exposed
