from tests.properties.test_readers import *
from tests.properties.test_readers import _rows_at
pytestmark = [pytest.mark.spark]
@pytest.mark.parametrize("seed", range(500, 530))
def test_dbg(database, spark, tmp_path, seed):
    count, looks = 2, 2
    rng = random.Random(seed + 2)
    tables = (TABLES[0], *rng.sample(TABLES[1:], count - 1))
    config = pipeline_config(database, tmp_path / "lake")
    workload = RandomWorkload(database.dsn, seed + 2)
    workload.create_tables()
    publish(database, tables)
    bootstrap(config, SOURCE, None, silent, Stop())
    recorded = {}
    for _ in range(looks):
        for _ in range(rng.randrange(20, 60)):
            workload.step()
        recorded[Lsn.parse(current_lsn(database.dsn))] = source_rows(database.dsn, tables)
    for _ in range(20):
        workload.step()
    workload.close()
    drain(config, SOURCE, Until.caught_up(), silent, Stop())
    cuts = compact(config, SOURCE, spark, silent, Stop())
    for c in cuts:
        for t, h in c.held.items(): print("HELD", seed, t, h)
    for position, expected in recorded.items():
        actual = lakeproof.as_of(spark, config, position)
        for number, table in enumerate(tables):
            rows = _rows_at(actual, database, table, tmp_path / f"{int(position)}-{number}")
            assert rows == expected[table], f"{table} at {position}, LAKEPROOF_SEED={seed}"
