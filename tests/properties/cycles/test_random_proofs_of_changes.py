"""Random changes, with proofs of changes and whole proofs between them: none says equal or differs where it is not so."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.maintain import MaintenanceRequest, maintain
from lakeproof.commands.prove import prove
from lakeproof.config.model import Config
from lakeproof.events import Stop, silent
from lakeproof.lake.delta.files.data_files import deleted_rows
from lakeproof.proof.run import ProofRequest
from tests.support.faults.layer_files import Layer, kept
from tests.support.lake.proof_steps import WITHOUT, into_the_lake, wrong_in
from tests.support.servers.fix_postgres import Database

pytestmark = pytest.mark.postgres

SEED = int(os.environ.get("LAKEPROOF_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
_TABLES = (
    "CREATE TABLE numbers (id int PRIMARY KEY, v text NOT NULL, d date)",
    "CREATE TABLE texts (id text, n int, v text NOT NULL, PRIMARY KEY (id, n))",
    "CREATE PUBLICATION pub FOR TABLE numbers, texts",
    "INSERT INTO numbers SELECT i, md5(i::text), date '2024-01-01' + i FROM generate_series(1, 3000) i",
    "INSERT INTO texts SELECT 'k' || i, i % 7, md5(i::text) FROM generate_series(1, 1500) i",
)
_CHANGES = (
    "UPDATE numbers SET v = md5(v) WHERE id % 97 = {n}",
    """UPDATE numbers SET id = id + 100000 WHERE id % 211 = {n} AND id < 100000
    AND NOT EXISTS (SELECT FROM numbers o WHERE o.id = numbers.id + 100000)""",
    "DELETE FROM numbers WHERE id % 131 = {n}",
    """INSERT INTO numbers SELECT i, md5(i::text), 'infinity' FROM generate_series({n} * 10, {n} * 10 + 30) i
    ON CONFLICT DO NOTHING""",
    "UPDATE numbers SET d = NULL WHERE id = {n}",
    "UPDATE texts SET v = md5(v) WHERE right(id, 2) = '{n}'",
    "UPDATE texts SET n = n + 30 WHERE right(id, 3) = '1{n}'",
    "DELETE FROM texts WHERE id = 'k{n}'",
    "INSERT INTO texts VALUES ('k{n}', 3, md5('{n}')) ON CONFLICT (id, n) DO UPDATE SET v = md5(texts.v)",
    "TRUNCATE texts; INSERT INTO texts SELECT 'k' || i, 1, md5(i::text) FROM generate_series(1, 900) i",
)
_WEIGHTS = (*[10] * (len(_CHANGES) - 1), 1)


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 8))])
def test_no_proof_is_wrong(database: Database, tmp_path: Path, number: int) -> None:
    """A proof of changes is equal whenever all is, and differs as soon as a row under a touched key does."""
    print(f"LAKEPROOF_SEED={SEED} number {number}")  # noqa: T201  (to run a failure again)
    rng = random.Random(SEED + number)
    database.execute(*_TABLES)
    source = database.source()
    retention = source.retention.model_copy(update={"small_files": 3})
    source = source.model_copy(update={"retention": retention})
    config = Config(path=tmp_path / "lakeproof.yaml", lake=str(tmp_path / "lake"), sources={"shop": source})
    bootstrap(config, "shop")
    into_the_lake(config)
    kinds = set[str]()
    for _ in range(10):
        for _ in range(rng.randrange(4)):
            chosen = rng.choices(_CHANGES, _WEIGHTS, k=rng.randrange(1, 4))
            database.execute(*(change.format(n=rng.randrange(10, 90)) for change in chosen))
            if rng.random() < 0.6:
                into_the_lake(config)
        if rng.random() < 0.2:
            maintain(config, "shop", WITHOUT, silent, MaintenanceRequest(), Stop())
        proof = prove(config, "shop", None, WITHOUT, request=ProofRequest(changed=rng.random() < 0.75))
        assert wrong_in(proof) == {}
        kinds |= {each.kind for each in proof.tables.values()}
        if rng.random() < 0.4:
            _damage_is_found(database, config, rng)
    assert kinds == {"whole", "changed"}
    assert wrong_in(prove(config, "shop", None, WITHOUT)) == {}


def _damage_is_found(database: Database, config: Config, rng: random.Random) -> None:
    """Touch rows, turn a value of one of them round, and prove what changed."""
    changed = ProofRequest(changed=True)
    assert wrong_in(prove(config, "shop", None, WITHOUT, request=changed)) == {}
    database.execute(f"UPDATE numbers SET v = md5(v) WHERE id % 83 = {rng.randrange(83)}")  # noqa: S608  the test's own
    into_the_lake(config)
    layer = Layer(config, "numbers")
    files = [(layer.folder / file.path, file) for file in layer.rows.files if file.live_rows]
    file, entry = max(files, key=lambda each: each[0].stat().st_mtime_ns)
    gone = set() if entry.deleted is None else set(deleted_rows(layer.rows.table, entry.deleted).tolist())
    row = rng.choice([row for row in range(pq.read_metadata(file).num_rows) if row not in gone])
    commit = max((layer.folder / "_delta_log").glob("*.json"))
    with kept(file), kept(commit):
        size = file.stat().st_size
        _turned_round(file, row, layer.physical("v"))
        log = commit.read_text(encoding="utf-8")
        # Its length would give it away.
        assert f'"size":{size}' in log
        commit.write_text(log.replace(f'"size":{size}', f'"size":{file.stat().st_size}'), encoding="utf-8")
        assert wrong_in(prove(config, "shop", None, WITHOUT, request=changed)).keys() == {"numbers"}
    assert wrong_in(prove(config, "shop", None, WITHOUT, request=changed)) == {}


def _turned_round(file: Path, row: int, name: str) -> None:
    """Write the file with one value turned round."""
    rows = pq.read_table(file)
    values = rows.column(name).to_pylist()
    values[row] = values[row][::-1] + "x"
    file.unlink()
    pq.write_table(rows.set_column(rows.column_names.index(name), name, pa.array(values, pa.string())), file)
