"""A feed whose caller takes longer than landed changes are kept: it goes on from history, or says why it can't."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakeproof
from lakeproof.errors import LakeError
from lakeproof.events import Stop
from lakeproof.hidden_columns import COMMIT_TIME, LSN, ORD, XID
from lakeproof.lake.planning.landing.waiting import LandingTail
from lakeproof.lake.read.arrow import transactions as feed_module
from lakeproof.lake.read.spark.subscribe import LandingReader
from lakeproof.lake.records.documents import CutOrdinals, CutTable
from lakeproof.lake.records.store import write_cut
from lakeproof.landing import chain as chain_module
from lakeproof.landing.chain import Chain
from lakeproof.landing.retention import put_chain_start, remove_below
from lakeproof.lsn import Lsn
from lakeproof.names import Incarnation
from tests.core.lake.lake_document_samples import CUT
from tests.core.landing.landing_segments import START, add_segment, new_chain, reopen, version

LINKS, LONG_S = 5, 20.0
ORDERS = version()


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chain:
    """A landing of five segments, one transaction each; whoever follows it looks at once where it begins."""
    monkeypatch.setattr(chain_module, "LIST_S", 0.0)  # inside: a test can't wait for five minutes
    chain = new_chain(tmp_path)
    for number in range(LINKS):
        add_segment(chain, 2000 + 1000 * number)
    return chain


def test_a_feed_has_every_row_of_every_transaction(chain: Chain) -> None:
    """Each table's, in their order, from the first of the landing on."""
    feed = lakeproof.transactions(chain.lake.url(""), "shop")
    rows = [[row for part in each.changes for row in part.rows.column("id").to_pylist()] for each in feed]
    assert rows == [[0, 1, 2]] * LINKS


def _go_on(chain: Chain) -> None:
    """Land twenty more, and remove what comes before the fifteenth."""
    for number in range(LINKS, LINKS + 20):
        add_segment(chain, 2000 + 1000 * number)
    put_chain_start(chain, 15)
    remove_below(reopen(chain), 15)


def test_what_the_landing_has_no_more_comes_from_history_each_transaction_once(chain: Chain) -> None:
    """In the order of commits, though files of history overlap: a large transaction's rows are in several of them."""
    _go_on(chain)
    lake, number = chain.lake, 0
    files = ([2000, 5000], [3000, 5000, 6000], [5000, 6000, 7000, 9000], [8000, 9000], range(9000, 16_000, 1000))
    for commits in files:
        ordinals = range(number, number := number + len(commits))
        rows = {LSN: list(commits), ORD: ordinals, XID: [7] * len(commits), "id": ordinals}
        times = pa.array(commits, pa.timestamp("us", "UTC"))
        write_deltalake(
            lake.url(lake.paths.history(ORDERS.table)), pa.table(rows | {COMMIT_TIME: times}), mode="append"
        )
    position, life = Lsn(15_000), Incarnation(1)
    table = CutTable(position, START, len(files) - 1, 0, ORDERS, life, life, ordinals=CutOrdinals(number, number))
    cut = replace(CUT, position=position, tables={ORDERS.table: table}, held={}, ordinals=table.ordinals)
    write_cut(lake, cut)
    feed = lakeproof.transactions(lake.url(""), "shop", since=Lsn(2000))
    given = [(int(each.position), sum(part.rows.num_rows for part in each.changes)) for each in feed]
    expected = Counter(lsn for commits in files for lsn in commits if lsn > 2000)
    expected |= Counter(dict.fromkeys(range(16_000, 27_000, 1000), 3))
    assert given == sorted(expected.items())


def test_a_feed_that_was_left_behind_does_not_wait_for_ever(
    tmp_path: Path, chain: Chain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest that it waits for was removed. The lake has no cut, so history does not lead on."""
    monkeypatch.setattr(feed_module, "LOOK_EVERY_S", 0.01)  # inside: a look every second is slow
    stop = Stop()
    feed = lakeproof.transactions(tmp_path, "shop", since=Lsn(1000), follow=True, stop=stop)
    positions = [next(feed).position for _ in range(LINKS)]
    assert positions == [Lsn(2000 + 1000 * number) for number in range(LINKS)]
    _go_on(chain)
    ending = threading.Timer(LONG_S, stop.request)
    ending.start()
    try:
        with pytest.raises(LakeError, match="history does not lead from there"):
            next(feed)
    finally:
        ending.cancel()
    assert not stop.requested


def test_a_stream_that_was_left_behind_says_so(tmp_path: Path, chain: Chain) -> None:
    """So does a stream of Spark's: its reader looks from a process of its own."""
    options = {"lake": str(tmp_path), "storage": "{}", "source": "shop", "since": "", "segments_per_batch": "100"}
    reader = LandingReader(options)
    limit, start = reader.getDefaultReadLimit(), reader.initialOffset()
    reached = reader.latestOffset(start, limit)
    assert reached == {"incarnation": 1, "position": 6000}
    _go_on(chain)

    with pytest.raises(LakeError, match="it was removed up to"):
        reader.latestOffset(reached, limit)
    assert Chain.open(chain.lake, Incarnation(1)).kept_from == Lsn(15_000)


def test_what_is_shown_of_a_landing_goes_on(chain: Chain) -> None:
    """Nobody has asked for longer than landed changes are kept: what was removed is in the lake."""
    tail = LandingTail.after(reopen(chain), Lsn(1000), 0.0)
    assert tail.waiting().rows == 3 * LINKS
    _go_on(chain)
    tail.drop_until(Lsn(15_000))
    waiting = tail.look(1.0)
    assert (tail.chain.end, tail.chain.kept_from, waiting.rows) == (Lsn(26_000), Lsn(15_000), 3 * 11)
    assert tail.look(2.0) == waiting
