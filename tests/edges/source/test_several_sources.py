"""Several sources in one configuration: each has its slot, landing and state, and none can hold up another."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

import pytest

from demo.server import free_port
from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.check import check_sources
from lakeproof.commands.drain import drain
from lakeproof.commands.publish import apply, plan
from lakeproof.commands.recover import plan_recover
from lakeproof.commands.status import status
from lakeproof.commands.teardown import plan_teardown, teardown
from lakeproof.config.model import Config, SourceConfig
from lakeproof.drain.until import Until
from lakeproof.errors import GapError, LakeError, SourceError
from lakeproof.landing.chain import Chain
from lakeproof.names import TableName
from lakeproof.storage.source_lake import SourceLake
from tests.support.servers.fix_postgres import Database, MakeServer

pytestmark = pytest.mark.postgres
A, B, BOTH = TableName("public", "a"), TableName("public", "b"), TableName("public", "shared")


@pytest.fixture
def two(database: Database, tmp_path: Path) -> Config:
    """Two sources over one database, a table set each; one table is in both."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE shared (id int PRIMARY KEY)",
        "CREATE PUBLICATION one FOR TABLE a, shared",
        "CREATE PUBLICATION two FOR TABLE b, shared",
    )
    sources = {
        name: SourceConfig(name=name, dsn=database.secret, publication=name, slot=f"{database.name}_{name}")
        for name in ("one", "two")
    }
    return Config(path=tmp_path / "w.yaml", lake=str(tmp_path / "lake"), sources=sources)


def landed(config: Config, name: str) -> dict[TableName, int]:
    """Inserts per table, from the manifests."""
    chain = Chain.open_newest(SourceLake.open(config.lake, name))
    assert chain is not None
    actual: dict[TableName, int] = {}
    for manifest in chain.manifests():
        for file in manifest.files:
            actual[file.table] = actual.get(file.table, 0) + file.counts.inserts
    return actual


def test_two_slots_of_one_database_each_with_its_tables(two: Config, database: Database) -> None:
    """The table that both publish lands in both; the loss of one slot is nothing to the other."""
    for name in two.sources:
        bootstrap(two, name)
    database.execute("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1), (2)", "INSERT INTO shared VALUES (1)")
    for name in two.sources:
        drain(two, name, Until.caught_up())
    assert landed(two, "one") == {A: 1, BOTH: 1}
    assert landed(two, "two") == {B: 2, BOTH: 1}
    database.drop_slot(two.sources["one"].slot)
    database.execute("INSERT INTO shared VALUES (2)")
    with pytest.raises(GapError):
        drain(two, "one", Until.caught_up())
    drain(two, "two", Until.caught_up())
    assert landed(two, "two") == {B: 2, BOTH: 2}
    report = status(two)
    assert [len(report.sources[name].problems) for name in ("one", "two")] == [1, 0]


def test_another_publication_for_the_same_landing_is_refused_everywhere(two: Config, database: Database) -> None:
    """Its tables would change without a copy; nothing is read or written, and the old name goes on."""
    one = two.sources["one"]
    bootstrap(two, "one")
    other = two.model_copy(update={"sources": {"one": one.model_copy(update={"publication": "two"})}})
    database.execute("INSERT INTO b VALUES (1)", "INSERT INTO shared VALUES (1)")
    words = "it belongs to publication 'one', the configuration says 'two'"
    for command in (lambda: drain(other, "one", Until.caught_up()), lambda: bootstrap(other, "one", [B])):
        with pytest.raises(LakeError, match=words):
            command()
    assert [words in problem.reason for problem in status(other).problems] == [True]
    with pytest.raises(SourceError, match=r"configure slot .* and publication one"):
        plan_recover(other, "one")
    drain(two, "one", Until.caught_up())
    assert landed(two, "one") == {BOTH: 1}


def test_a_publication_follows_one_source_alone(two: Config, database: Database) -> None:
    """Applied for a second source, it would lose the tables of the first, whose changes nobody would send any more."""
    sources = {
        name: two.sources[name].model_copy(update={"publication": "made", "tables": (table,)})
        for name, table in (("one", A), ("two", B))
    }
    shared = two.model_copy(update={"sources": sources})
    apply(shared, "one", plan(shared, "one"))
    members = "SELECT tablename::text FROM pg_publication_tables WHERE pubname = 'made'"
    with pytest.raises(SourceError, match="follows the configuration of source one, not of two"):
        apply(shared, "two", plan(shared, "two"))
    for command in (plan_teardown, teardown):
        with pytest.raises(SourceError, match="follows the configuration of source one, not of two"):
            command(shared, "two")
    assert database.rows(members) == [("a",)]
    # Marked by hand, it follows whoever applies it, as somebody has asked for.
    database.execute("COMMENT ON PUBLICATION made IS 'lakeproof: mine'", "DROP PUBLICATION made_inserts")
    apply(shared, "two", plan(shared, "two"))
    assert database.rows(members) == [("b",)]


def test_a_source_whose_server_is_silent_holds_up_no_other(
    two: Config, database: Database, make_server: MakeServer
) -> None:
    """A port that accepts and says nothing, one that nobody listens on, and a server that is stopped: three problems."""
    bootstrap(two, "one")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        others = {
            name: two.sources["two"].model_copy(
                update={"name": name, "dsn": type(database.secret)(f"host=127.0.0.1 port={port} dbname=x user=x")}
            )
            for name, port in (("mute", mute.getsockname()[1]), ("dead", free_port()))
        }
        with make_server() as server:
            hung = two.sources["two"].model_copy(update={"name": "hung", "dsn": type(database.secret)(server.dsn())})
            config = two.model_copy(update={"sources": two.sources | others | {"hung": hung}})
            os.kill(server.pid, signal.SIGSTOP)
            try:
                # The one that is well has to answer within this, on a machine that may be busy.
                report = status(config, timeout_s=6.0)
                checked = check_sources(config, config.sources, timeout_s=6.0)
            finally:
                os.kill(server.pid, signal.SIGCONT)
    assert report.sources["one"].server is not None
    assert report.sources["one"].problems == ()
    for name in ("mute", "dead", "hung"):
        assert [p.transient for p in report.sources[name].problems] == [True], name
        assert checked[name].refused
        assert checked[name].server is None
    assert checked["one"].server is not None
