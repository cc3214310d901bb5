"""The server does not give one table: a proof of either kind compares all others, and says of that one what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.proof.result import TableProof
from lakeproof.proof.run import ProofRequest
from tests.support.lake.proof_steps import WITHOUT, into_the_lake
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres


def _proven(config: Config, *, changed: bool) -> dict[str, TableProof]:
    report = prove(config, "shop", None, WITHOUT, request=ProofRequest(changed=changed))
    return {table.name: proof for table, proof in report.tables.items()}


def test_a_privilege_that_was_taken_away(database: Database, tmp_path: Path) -> None:
    """The table is blocked until its owner gives it back, and proven then."""
    for name in ("a", "b", "c"):
        database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {name} SELECT i, 'v' FROM generate_series(1, 50) i",  # noqa: S608  the test's own
        )
    database.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    dsn = database.role("LOGIN REPLICATION")
    database.execute(f"GRANT SELECT ON a, b, c TO {database.roles[-1]}")
    source = database.source(dsn=SecretStr(dsn))
    config = Config(path=tmp_path / "x.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config)
    assert {p.status for p in _proven(config, changed=False).values()} == {"equal"}
    database.execute(f"REVOKE SELECT ON b FROM {database.roles[-1]}")  # noqa: S608  the test's own
    for changed in (True, False):
        database.execute(*(f"UPDATE {name} SET v = v || '1' WHERE id = 7" for name in "abc"))  # noqa: S608  the test's own
        proofs = _proven(config, changed=changed)
        assert {name: p.status for name, p in proofs.items()} == {"a": "equal", "b": "blocked", "c": "equal"}
        assert "permission denied for table b" in (proofs["b"].reason or "")
        assert "grant the role what it lacks" in (proofs["b"].reason or "")
    database.execute(f"GRANT SELECT ON b TO {database.roles[-1]}")
    assert {p.status for p in _proven(config, changed=True).values()} == {"equal"}
