"""A refused connection, in whatever language the server speaks: whether it is waited out or ends a drain.

libpq gives no SQLSTATE for it. What real servers refuse in English is in tests/edges/source/test_source_server.py.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pydantic import SecretStr

from lakeproof.errors import LakeproofError, SourceError, TransientError
from lakeproof.postgres.connections.connect import connect, connect_replication

# As PostgreSQL's own catalogs of messages have them.
PASSES = [
    "das Datenbanksystem startet",
    "das Datenbanksystem fährt herunter",
    "tut mir leid, schon zu viele Verbindungen",
    "Anzahl angeforderter Standby-Verbindungen überschreitet max_wal_senders (aktuell 10)",
    "le système de base de données s'arrête",
    "lo siento, ya tenemos demasiados clientes",
    "データベースシステムはリカバリモードです",
    'число запрошенных подключений резервных серверов превышает "max_wal_senders" (сейчас: 3)',
    "the database system is starting up",
    "sorry, too many clients already",
    'too many connections for role "shop"',
]
STAYS = [
    "Passwort-Authentifizierung für Benutzer »shop« fehlgeschlagen",
    "kein pg_hba.conf-Eintrag für Host »::1«, Benutzer »shop«, Datenbank »shop«, keine Verschlüsselung",
    "nur Superuser und Replikationsrollen können WAL-Sender starten",
    "la base de données « shop » n'existe pas",
    "no existe el rol «shop»",
    'valore non valido per il parametro "TimeZone": "x"',
    'データベース"shop"は存在しません',
    'database "shop" does not exist',
    "connection requires a valid client certificate",
    "no such user",
]


@contextmanager
def refusing(text: str, severity: str) -> Iterator[SecretStr]:
    """The DSN of a listener that answers each start of a connection with this refusal."""
    body = f"S{severity}\0VFATAL\0C00000\0M{text}\0\0".encode()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            # Nothing is encrypted: the first message is the startup.
            conn, _ = listener.accept()
            with conn:
                conn.recv(4096)
                conn.sendall(b"E" + struct.pack("!i", len(body) + 4) + body)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        dsn = (
            f"host=127.0.0.1 port={listener.getsockname()[1]} dbname=shop user=shop sslmode=disable gssencmode=disable"
        )
        yield SecretStr(dsn)
        thread.join()


@pytest.mark.parametrize("severity", ["FATAL", "FATALE", "致命的エラー"])
@pytest.mark.parametrize(
    ("text", "kind"), [*((text, TransientError) for text in PASSES), *((text, SourceError) for text in STAYS)]
)
def test_passing_refusals_are_distinguished_from_those_that_a_person_must_end(
    text: str, kind: type[LakeproofError], severity: str
) -> None:
    """A server that starts, shuts down, recovers or is full names nothing; a role, a database or a setting is named."""
    for make in (connect, connect_replication):
        with refusing(text, severity) as dsn, pytest.raises(kind) as refusal:
            make(dsn)
        assert text in str(refusal.value)
