"""`lakeproof status` without a server: the lake is shown all the same, and the exit status says how things stand."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from lakeproof.catalog.differences import Difference
from lakeproof.cli.main import main
from lakeproof.commands.status import status
from lakeproof.config.load import load
from lakeproof.lake.records.documents import Cut, CutTable, CycleKind
from lakeproof.lake.records.held import Held, HeldCause, WayOut
from lakeproof.lake.records.lease import hold_lease
from lakeproof.lake.records.store import write_cut
from lakeproof.lake.records.views.cuts import ViewCut
from lakeproof.landing.chain import Chain, NewHead
from lakeproof.landing.segments.manifest import ChainSource, Manifest, ManifestKind
from lakeproof.lsn import Lsn
from lakeproof.names import CycleNumber, Incarnation, Oid, TableName
from lakeproof.proof.record import record
from lakeproof.proof.result import ProofReport, TableProof
from lakeproof.schema import Column, Identity, SchemaVersion
from lakeproof.snapshot.folder import SnapshotRequest, part_key, request_key
from lakeproof.snapshot.state import SnapshotDoc, SnapshotTable
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.source_lake import SourceLake

ORDERS = TableName("shop", "orders")
LINES = TableName("shop", "order lines")
ONE = Incarnation(1)
C = Lsn(0x1000)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A configuration with one source and one view, and nothing behind it: a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    (tmp_path / "v.sql").write_text("SELECT * FROM o")
    path = tmp_path / "lakeproof.yaml"
    path.write_text(
        f"lake: lake\nsources:\n  shop:\n    dsn: 'host=127.0.0.1 port={port} dbname=shop user=u'\n"
        "views:\n  v: {sql: v.sql, reads: {o: shop/shop.orders}}\n"
    )
    return path


def version(table: TableName) -> SchemaVersion:
    """A table of one column."""
    column = Column("id", Oid(20), -1, "bigint", "int8", 1, identity=True)
    return SchemaVersion(table, Oid(16_400), Identity.DEFAULT, (column,), ("id",))


def places(file: Path) -> SourceLake:
    """The lake of the configuration."""
    lake = load(file).lake
    return SourceLake.open(lake, "shop")


def begin(file: Path) -> Chain:
    """A landing from C to 0x3000."""
    lake = places(file)
    source = ChainSource("7", 1, "shop", 16384, "lakeproof_shop", "lakeproof_shop", 180_000)
    chain = Chain.create(lake, ONE, NewHead(C, source, "0" * 32))
    kind, created_at = ManifestKind.PROGRESS, "2026-11-21T12:00:00.000000Z"
    chain.append(Manifest(kind, 1, ONE, chain.next_ordinal, C, Lsn(0x3000), None, "0" * 32, created_at))
    return chain


def cut(file: Path, number: int = 3, held: dict[TableName, Held] | None = None) -> None:
    """A cut at 0x2000, whose table is proved."""
    lake = places(file)
    table = CutTable(Lsn(0x2000), C, 4, 5, version(ORDERS), ONE, ONE)
    document = Cut(
        number=CycleNumber(number),
        kind=CycleKind.APPLY,
        incarnation=ONE,
        position=Lsn(0x2000),
        commit_time=None,
        tables={ORDERS: table},
        next_segment=2,
        intent_sha256="0" * 64,
        created_at="2026-11-21T12:00:01Z",
        held=held or {},
    )
    write_cut(lake, document)
    record(lake, ONE, ProofReport("shop", Lsn(0x2000), {ORDERS: TableProof("equal", 1, 1)}))


def run(file: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    """The exit status and the JSON result."""
    result = main(["-c", str(file), "status", "--json"])
    return result, json.loads(capsys.readouterr().out)


def test_before_anything_was_done_there_is_nothing_and_no_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The only problem is the unreachable server (try again); looking creates nothing."""
    result, document = run(file, capsys)
    shop = document["sources"]["shop"]
    assert result == 3
    assert (shop["landing"], shop["cut"], shop["slot"], shop["lease"], shop["lease_taken"]) == (
        None,
        None,
        None,
        None,
        False,
    )
    assert [p["transient"] for p in shop["problems"]] == [True]
    assert document["views"]["v"]["cut"] is None
    assert not (file.parent / "lake").exists()


def test_the_lake_is_shown_where_the_server_is_down(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page has the distance between landing and cut."""
    begin(file)
    cut(file)
    result, document = run(file, capsys)
    shop = document["sources"]["shop"]
    assert result == 3
    assert (shop["landing"]["end_lsn"], shop["landing"]["number"]) == ("0/3000", 1)
    assert (shop["cut"]["number"], shop["cut"]["position"], shop["cut"]["tables"]) == (3, "0/2000", 1)
    assert (shop["lake_lag_bytes"], shop["drain_lag_bytes"]) == (0x1000, None)


def test_a_held_table_is_exit_status_1_with_reason_and_remedy(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The status is 1 even if the server is down."""
    begin(file)
    cut(
        file,
        held={LINES: Held(Lsn(0x1500), HeldCause.DATA_REFUSED, WayOut.SNAPSHOT, {"problem": "column x was added"})},
    )
    result, document = run(file, capsys)
    assert result == 1
    assert document["sources"]["shop"]["held"] == {
        'shop."order lines"': {
            "at_lsn": "0/1500",
            "cause": "data refused",
            "way_out": "snapshot",
            "reason": "column x was added",
            "remedy": """run `lakeproof bootstrap shop --tables 'shop."order lines"'`, then compact""",
            "history_lost": False,
        }
    }
    assert main(["-c", str(file), "status"]) == 1
    text = capsys.readouterr().out
    assert "held       shop.order lines: held since 0/1500: column x was added; run `lakeproof bootstrap" in text


@pytest.mark.parametrize(("named", "expected"), [("", 3), ("    tables: [shop.orders, 'shop.\"order lines\"']\n", 1)])
@pytest.mark.parametrize("what", ["dropped", "renamed"])
def test_a_table_that_is_gone_and_not_configured_is_no_failure(
    file: Path, capsys: pytest.CaptureFixture[str], named: str, expected: int, what: str
) -> None:
    """The table is shown, but nobody can do anything about it (3: the server is down)."""
    file.write_text(file.read_text().replace("views:", f"{named}views:"))
    begin(file)
    detail = {"upper_lsn": "0/1600", "lower_lsn": "0/1500"} | (
        {"renamed_to": "shop/lines"} if what == "renamed" else {}
    )
    differences = (Difference.DROPPED if what == "dropped" else Difference.RENAMED,)
    held = Held(Lsn(0x1500), HeldCause.CATALOG, WayOut.PUBLISH_THEN_SNAPSHOT, detail, differences)
    cut(file, held={LINES: held})
    assert run(file, capsys)[0] == expected
    main(["-c", str(file), "status"])
    message, text = "held" if named else "left", capsys.readouterr().out
    assert f"{message}       shop.order lines: held since 0/1500: it was {what}" in text
    assert ("run `lakeproof bootstrap shop --tables shop.lines`" in text) == (what == "renamed")


def test_a_snapshot_that_left_tables_is_exit_status_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No later run copies the tables, and no other output mentions them."""
    begin(file)
    cut(file)
    lake = places(file)
    folder = lake.paths.snapshot(ONE, C)
    expected = SnapshotRequest(ONE, C, "lakeproof_shop", "2026-11-21T12:00:00Z", (ORDERS, LINES))
    lake.store.put_if_absent(request_key(folder), expected.to_bytes())
    document = SnapshotDoc(ONE, C, "a", "b", "lakeproof_shop", {ORDERS: SnapshotTable(version(ORDERS), 0, ())})
    lake.store.put_if_absent(part_key(folder, 0), document.to_bytes())
    result, message = run(file, capsys)
    assert (result, message["sources"]["shop"]["snapshot"]["missing"]) == (1, ['shop."order lines"'])


def test_a_snapshot_that_has_not_entered_is_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot that has entered is not shown."""
    begin(file)
    cut(file)
    lake = places(file)
    tables = {t: SnapshotTable(version(t), 0, ()) for t in (ORDERS, LINES)}
    document = SnapshotDoc(ONE, C, "a", "b", "lakeproof_shop", tables)
    lake.store.put_if_absent(part_key(lake.paths.snapshot(ONE, C), 0), document.to_bytes())
    assert run(file, capsys)[1]["sources"]["shop"]["snapshots"] == {'shop."order lines"': "0/1000"}


def test_a_view_says_how_far_it_is_behind(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lag is counted in cuts of its sources."""
    begin(file)
    cut(file, number=5)
    store = places(file).store
    sources, then = {"shop": CycleNumber(3)}, "2026-11-21T12:00:02Z"
    document = ViewCut(CycleNumber(1), "v", 8, "0" * 64, sources, 2, 1, then, 1, "full", None, None, 0, then, {}, None)
    store.put_if_absent(LakePaths.view_cut(CycleNumber(1)), document.to_bytes())
    view = run(file, capsys)[1]["views"]["v"]
    assert (view["behind"], view["cut"]["delta_version"]) == ({"shop": 2}, 8)
    main(["-c", str(file), "status"])
    assert "shop 3" in capsys.readouterr().out


def test_a_lease_is_seen_without_being_touched(file: Path) -> None:
    """Held while it is held; a look never keeps a compaction from taking it."""
    begin(file)
    lake = places(file)
    with hold_lease(lake):
        seen = status(load(file)).sources["shop"]
        assert seen.lease_taken in (True, None)
        assert f"process {os.getpid()} on " in (seen.lease or "")
    after = status(load(file)).sources["shop"]
    assert after.lease_taken in (False, None)
    assert after.lease == seen.lease


def test_another_files_lock_is_not_the_lease(file: Path, tmp_path: Path) -> None:
    """The kernel lists every lock of the machine."""
    begin(file)
    with (tmp_path / "other").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert status(load(file)).sources["shop"].lease_taken in (False, None)


@pytest.mark.parametrize("damage", [b"", b"{}", b"not JSON", b'{"format": "lakeproof.cut/9"}'])
def test_a_damaged_cut_is_a_problem_and_the_rest_is_shown(
    file: Path, capsys: pytest.CaptureFixture[str], damage: bytes
) -> None:
    """A person must change something: exit status 2."""
    begin(file)
    lake = places(file)
    lake.store.put_if_absent(lake.paths.cut(CycleNumber(1)), damage)
    result, document = run(file, capsys)
    shop = document["sources"]["shop"]
    assert result == 2
    assert shop["landing"]["end_lsn"] == "0/3000"
    assert any("000000000001.json" in p["thing"] for p in shop["problems"])


def test_a_damaged_chain_is_a_problem_and_the_rest_is_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cut is shown all the same."""
    begin(file)
    cut(file)
    lake = places(file)
    Path(lake.url(lake.paths.manifest(ONE, 1))).write_bytes(b"{}")
    result, document = run(file, capsys)
    assert result == 2
    assert document["sources"]["shop"]["landing"] is None
    assert document["sources"]["shop"]["cut"]["number"] == 3


def test_a_missing_secret_is_a_problem_that_names_the_variable(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lake needs no secret."""
    begin(file)
    monkeypatch.delenv("LP_TEST_PASSWORD", raising=False)
    text = file.read_text()
    file.write_text(text.replace("views:", "    password: {env: LP_TEST_PASSWORD}\nviews:"))
    result, document = run(file, capsys)
    shop = document["sources"]["shop"]
    assert result == 2
    assert shop["landing"]["end_lsn"] == "0/3000"
    assert any("LP_TEST_PASSWORD is not set" in p["reason"] for p in shop["problems"])


def test_the_page_for_people_names_every_part(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each part has its own line."""
    begin(file)
    cut(file)
    assert main(["-c", str(file), "status"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "source shop"
    assert "  landing    ends at 0/3000 (manifest 1 of incarnation 1)" in lines
    assert "  lake       cut 3 at 0/2000, 1 table, 4.1 kB of WAL behind the landing" in lines
    assert any(line.startswith("  problem    source u@127.0.0.1:") for line in lines)
    assert run(file, capsys)[1]["cluster"] is None
    file.write_text(file.read_text(encoding="utf-8") + "\nspark: {master: 'spark://a:7077'}\n", encoding="utf-8")
    assert run(file, capsys)[1]["cluster"] == "spark://a:7077"
    main(["-c", str(file), "status"])
    assert "Spark's tasks go to the cluster spark://a:7077" in capsys.readouterr().out


def _table(folder: Path, sizes: tuple[int, ...]) -> None:
    """A Delta table of one file per version."""
    (folder / "_delta_log").mkdir(parents=True)
    for number, size in enumerate(sizes):
        added = json.dumps({"add": {"path": f"{number}.parquet", "size": size, "dataChange": True}})
        (folder / "_delta_log" / f"{number:020d}.json").write_text(added, encoding="utf-8")
        (folder / f"{number}.parquet").write_bytes(b"x" * size)


def test_sizes_are_shown_if_requested(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Sizes cover the landing and each table, the number of kept cuts, and what maintenance would remove."""
    chain = begin(file)
    cut(file)
    assert run(file, capsys)[1]["sources"]["shop"]["sizes"] is None
    main(["-c", str(file), "status", "--json", "--sizes"])
    shop = json.loads(capsys.readouterr().out)["sources"]["shop"]
    assert shop["sizes"]["tables"] == {}
    assert "there is no Delta table" in shop["sizes"]["damaged"]["shop.orders"]["reason"]
    assert any("there is no Delta table" in problem["reason"] for problem in shop["problems"])
    _table(Path(chain.lake.url(chain.lake.paths.current(ORDERS))), (1, 2, 3, 4, 5, 6))
    _table(Path(chain.lake.url(chain.lake.paths.history(ORDERS))), (7, 8, 9, 10, 11))
    (Path(chain.lake.url(chain.lake.paths.current(ORDERS))) / "stray.parquet").write_bytes(b"x" * 100)
    main(["-c", str(file), "status", "--json", "--sizes"])
    sizes = json.loads(capsys.readouterr().out)["sources"]["shop"]["sizes"]
    assert sizes["cuts"] == 1
    assert sizes["landing"]["files"] == 2
    assert sizes["tables"]["shop.orders"] == {
        "current": {"files": 6, "bytes": 21},
        "history": {"files": 5, "bytes": 45},
    }
    assert sizes["reclaimable"] == {"files": 1, "bytes": 100}
    main(["-c", str(file), "status", "--sizes"])
    page = capsys.readouterr().out
    assert (
        "current 21 B in 6 files, history 45 B in 5 files, 1 cut kept; maintenance would free 100 B in 1 file now"
        in page
    )
    assert "  size       shop.orders: current 21 B in 6 files, history 45 B in 5 files" in page


def test_files_that_go_while_they_are_counted_are_a_problem_of_their_source(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease is taken, so a compaction or a maintenance may work beside it."""
    chain = begin(file)
    cut(file)
    _table(Path(chain.lake.url(chain.lake.paths.current(ORDERS))), (1, 2, 3, 4, 5, 6))
    _table(Path(chain.lake.url(chain.lake.paths.history(ORDERS))), (7, 8, 9, 10, 11))

    def gone(*_: object) -> None:
        raise FileNotFoundError("part-1.parquet")

    # inside: nobody can time a removal between two looks
    monkeypatch.setattr("lakeproof.lake.cycle.upkeep.table_files.unneeded", gone)
    main(["-c", str(file), "status", "--json", "--sizes"])
    shop = json.loads(capsys.readouterr().out)["sources"]["shop"]
    assert shop["sizes"] is None
    assert any("removed while it was looked at: part-1.parquet" in problem["reason"] for problem in shop["problems"])


def test_proofs_of_removed_tables_are_not_shown(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """If no table is configured, the lake's tables count."""
    lake = places(file)
    cut(file)
    proofs = {table: TableProof("equal", 1, 1) for table in (ORDERS, LINES)}
    record(lake, ONE, ProofReport("shop", Lsn(0x2000), proofs))
    assert list(run(file, capsys)[1]["sources"]["shop"]["proved"]) == ["shop.orders"]
    # The configured tables count, if there are any.
    named = "  shop:\n    tables: [shop.orders, 'shop.\"order lines\"']\n"
    file.write_text(file.read_text().replace("  shop:\n", named))
    assert len(run(file, capsys)[1]["sources"]["shop"]["proved"]) == 2


def test_a_proof_that_compared_nothing_says_so(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last equal proof is still named, and why nothing was compared."""
    begin(file)
    cut(file)
    lake = places(file)
    blocked = TableProof("blocked", reason="the lake has it at 0/2000, not at 0/3000; try again")
    record(lake, ONE, ProofReport("shop", Lsn(0x2000), {ORDERS: TableProof("equal", 5, 5)}))
    record(lake, ONE, ProofReport("shop", Lsn(0x3000), {ORDERS: blocked}))
    main(["-c", str(file), "status"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("  proved")]
    assert lines[0].startswith("  proved     1 table, not compared (last equal at 20")
    assert lines[1].startswith("  proved     shop.orders: not compared (last equal at 0/2000), blocked (20")
    assert lines[1].endswith("the lake has it at 0/2000, not at 0/3000; try again")
    record(lake, ONE, ProofReport("shop", Lsn(0x4000), {ORDERS: TableProof("differs", 7, 6, 1)}))
    record(lake, ONE, ProofReport("shop", Lsn(0x5000), {ORDERS: blocked}))
    main(["-c", str(file), "status"])
    assert "not compared (last equal at 0/2000, it differed at 0/4000), blocked" in capsys.readouterr().out


def test_a_proof_without_a_landing_is_refused_before_spark_starts(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is not asked either."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert main(["-c", str(file), "prove"]) == 2
    message = capsys.readouterr().err
    assert "run `lakeproof bootstrap shop` first" in message
    assert "Java" not in message
