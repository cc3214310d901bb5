"""An edited view changes nothing until it is applied; a preview is seen by nobody; what is applied can be taken back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakeproof.cli.main import main
from lakeproof.cli.results import from_json, to_json
from lakeproof.cli.status_page import page
from lakeproof.cli.view_commands import replaced
from lakeproof.commands.refresh import ReplaceReport, apply_preview, preview, refresh, take_back
from lakeproof.errors import ConfigError, LakeError
from lakeproof.failpoints import watched
from lakeproof.lake.delta.log.commits import newest_version
from lakeproof.lake.delta.versions import read_view
from lakeproof.lake.records.views.cuts import newest_view_cut, view_path
from lakeproof.lake.records.views.definitions import newest_preview
from lakeproof.state.due_work import why_not_refresh
from lakeproof.state.status import lake_status
from lakeproof.storage.open import open_store
from lakeproof.storage.paths import LakePaths
from lakeproof.views.audit import audit_view
from tests.support.lake.lake_steps import make_config
from tests.support.lake.proof_steps import WITHOUT
from tests.support.views.view_shop import Shop, T

pytestmark = pytest.mark.spark

FIRST = "SELECT id, 'x' AS v FROM t"


class Edited:
    """A lake with three rows, and view `a` over it, whose file a test edits."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.shop = Shop(spark, folder)
        sources = make_config(folder / "lake").sources
        self.config, self.spark = self.shop.config.model_copy(update={"sources": sources}), self.shop.spark
        self.store = open_store(self.config.location)
        for _ in range(3):
            self.shop.cut()
        refresh(self.config, "a", self.spark)

    def edit(self, sql: str) -> None:
        """Write the view's file."""
        self.config.views["a"].sql_file.write_text(sql, encoding="utf-8")

    def rows(self) -> Counter[Any]:
        """The rows that a reader of the newest cut sees."""
        cut = newest_view_cut(self.store, "a")
        assert cut is not None
        return Counter(map(tuple, read_view(self.spark, self.store, cut).collect()))

    def answer(self, sql: str) -> Counter[Any]:
        """What a query gives over the table as it is."""
        session = self.spark.newSession()
        place = self.shop.source_lake.url(self.shop.source_lake.paths.current(T))
        session.read.format("delta").load(place).drop("_lp_text").createOrReplaceTempView("t")
        return Counter(map(tuple, session.sql(sql).collect()))

    def version(self) -> int:
        """The version of the view's table."""
        return newest_version(view_path(self.store, "a"))

    def previews(self) -> list[str]:
        """The folders of the view's previews."""
        return self.store.folders(LakePaths.view_previews("a"))


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Edited:
    """Return the lake."""
    return Edited(spark, tmp_path)


def test_an_edit_is_seen_applied_and_taken_back(place: Edited) -> None:
    """Rows alone differ: what was staged is what is committed, in one commit of few rows."""
    config, spark, second = place.config, place.spark, "SELECT id, if(id = 1, 'y', 'x') AS v FROM t WHERE id <> 2"
    place.edit(second)
    (result,) = refresh(config, "a", spark)
    assert place.rows() == place.answer(FIRST)
    assert "edited, not applied" in (result.not_applied or "")
    assert why_not_refresh(config, "a") is not None, "an edit is no work of a refresh"
    shown = preview(config, "a", spark)
    assert (shown.inserted, shown.retracted, shown.rewritten) == (1, 2, None)
    assert [(s.comes, s.values) for s in shown.samples] == [
        (True, {"id": "1", "v": "y"}),
        (False, {"id": "1", "v": "x"}),
        (False, {"id": "2", "v": "x"}),
    ]
    assert "would come" in replaced(shown)
    assert from_json(ReplaceReport, to_json(shown)) == shown
    assert (place.version(), place.rows()) == (0, place.answer(FIRST))
    assert preview(config, "a", spark, samples=0).samples == []
    assert len(place.previews()) == 2, "the one before may just be applied"
    applied = apply_preview(config, "a", spark)
    assert (applied.done, applied.inserted, applied.retracted, applied.moved) == ("applied", 1, 2, None)
    cut = newest_view_cut(place.store, "a")
    assert cut is not None
    assert (cut.strategy, cut.delta_version, place.version()) == ("staged", 1, 1)
    assert place.rows() == place.answer(second)
    assert place.previews() == []
    assert apply_preview(config, "a", WITHOUT).done == "nothing", "a run that did not see its own end is repeated"
    place.shop.cut()
    assert refresh(config, "a", spark)[0].not_applied is None
    assert place.rows() == place.answer(second)
    assert take_back(config, "a", spark).done == "taken_back"
    assert place.rows() == place.answer(FIRST)
    assert "edited, not applied" in (refresh(config, "a", spark)[0].not_applied or "")
    with pytest.raises(ConfigError, match="taken back already"):
        take_back(config, "a", WITHOUT)


@pytest.mark.full
def test_columns_come_go_and_change_their_types(place: Edited) -> None:
    """The table stays; the cut before has the old columns; a refresh goes on with the new ones."""
    config, spark = place.config, place.spark
    old = newest_view_cut(place.store, "a")
    assert old is not None
    second = "SELECT CAST(id AS string) AS id, id * 2 AS twice FROM t"
    place.edit(second)
    shown = preview(config, "a", spark)
    assert (shown.added, shown.dropped, shown.retyped) == ({"twice": "int"}, {"v": "string"}, {"id": "int → string"})
    assert (shown.inserted, shown.retracted, shown.rewritten) == (3, 3, 3)
    assert apply_preview(config, "a", spark).moved is None
    assert place.rows() == place.answer(second)
    assert read_view(spark, place.store, old).columns == ["id", "v"]
    place.shop.cut()
    refresh(config, "a", spark)
    assert place.rows() == place.answer(second)
    third = "SELECT id, id * 2 AS twice, id > 1 AS big FROM (SELECT CAST(id AS string) AS id FROM t WHERE id <> 3)"
    place.edit(third.replace("id * 2", "CAST(id * 2 AS int)"))
    shown = preview(config, "a", spark)
    assert (shown.inserted, shown.retracted, shown.rewritten) == (0, 1, 3), "a row that gets a column does not differ"
    take_back(config, "a", spark)
    assert place.rows() == place.answer(FIRST)
    for sql, reason in (
        ("SELECT id, INTERVAL '1' DAY AS d FROM t", "column d"),
        ("SELECT id AS `i d` FROM t", "column i d: Parquet refuses"),
        ("SELECT nothing FROM t", r"a\.sql: \[UNRESOLVED_COLUMN"),
        ("SELECT id FROM t WHERE (", r"a\.sql: \[PARSE_SYNTAX_ERROR"),
    ):
        place.edit(sql)
        with pytest.raises(ConfigError, match=reason):
            preview(config, "a", spark)
        assert refresh(config, "a", spark)[0].stands_still is None
    assert place.rows() == place.answer(FIRST)


@pytest.mark.full
def test_the_same_columns_in_another_order_are_no_change(place: Edited) -> None:
    """The table keeps its order: the view is its query's answer, and is refreshed from changes and as a whole as before."""
    config, spark, second = place.config, place.spark, "SELECT 'x' AS v, id FROM t WHERE id <> 1"

    def check(strategy: str, version: int) -> None:
        cut = newest_view_cut(place.store, "a")
        assert cut is not None
        assert (cut.strategy, cut.delta_version, place.version()) == (strategy, version, version)
        assert place.rows() == place.answer(f"SELECT id, v FROM ({second})")  # noqa: S608  a query of the test's
        assert audit_view(spark.newSession(), place.store, config.views["a"]).status == "equal"

    place.shop.cut()
    refresh(config, "a", spark)
    place.edit(second)
    shown = preview(config, "a", spark)
    assert (shown.inserted, shown.retracted, shown.rewritten) == (0, 1, None)
    assert apply_preview(config, "a", spark).moved is None
    check("staged", 2)
    place.shop.cut()
    refresh(config, "a", spark)
    check("linear", 3)
    whole = {"a": config.views["a"].model_copy(update={"refresh": "full"})}
    place.shop.cut()
    (result,) = refresh(config.model_copy(update={"views": whole}), "a", spark)
    assert (result.inserted, result.retracted) == (1, 0), "and not the whole table anew"
    check("full", 4)


@pytest.mark.full
def test_a_view_that_has_moved_on_is_computed_again(place: Edited) -> None:
    """Newer cuts, a refresh, a table that somebody else wrote: each is named, and the answer is that of the newest cuts."""
    config, spark = place.config, place.spark

    def applied(sql: str) -> str:
        place.edit(sql)
        shown = preview(config, "a", spark)
        place.shop.cut()
        if "refresh" in sql:
            refresh(config, "a", spark)
        done = apply_preview(config, "a", spark, name=shown.preview)
        assert place.rows() == place.answer(sql)
        assert done.previewed is not None
        return done.moved or ""

    assert "shop is at cut 4, the preview read 3" in applied("SELECT id, 'cut' AS v FROM t")
    assert "the view is at cut" in applied("SELECT id, 'refresh' AS v FROM t")
    place.edit("SELECT id, 'other' AS v FROM t")
    shown = preview(config, "a", spark)
    spark.sql(f"DELETE FROM delta.`{view_path(place.store, 'a')}` WHERE id = 0")  # noqa: S608  a folder of our own
    assert "written by somebody else" in (apply_preview(config, "a", spark).moved or "")
    assert place.rows() == place.answer("SELECT id, 'other' AS v FROM t")
    place.edit("SELECT id, 'late' AS v FROM t")
    with pytest.raises(ConfigError, match="no preview to apply"):
        apply_preview(config, "a", WITHOUT)
    later = preview(config, "a", spark)
    with pytest.raises(ConfigError, match=f"the newest is {later.preview}"):
        apply_preview(config, "a", WITHOUT, name=shown.preview)
    place.edit("SELECT id, 'later' AS v FROM t")
    with pytest.raises(ConfigError, match="edited again since the preview"):
        apply_preview(config, "a", WITHOUT)
    with pytest.raises(LakeError, match="does not have it yet"):
        preview(config, "b", WITHOUT)


@pytest.mark.full
def test_staged_rows_have_any_names_and_are_all_there_or_not_used(place: Edited) -> None:
    """Names that a table keeps by column mapping are staged as they are; if a staged file is gone, all is computed again."""
    config, spark, file = place.config, place.spark, place.config.views["b"].sql_file
    sql = "SELECT id AS `i d,;{}()=.` , array(id) AS `a\tb`, v AS `c``\nd` FROM (SELECT id, '%s' AS v FROM t)"
    file.write_text(sql % "x", encoding="utf-8")
    refresh(config, "b", spark)
    for value in ("y", "z"):
        file.write_text(sql % value, encoding="utf-8")
        shown = preview(config, "b", spark)
        if value == "z":
            folder = Path(place.store.url(LakePaths.view_preview("b", str(shown.preview))), "insertions")
            max(folder.glob("*.parquet"), key=lambda each: each.stat().st_size).unlink()
        applied = apply_preview(config, "b", spark)
        assert applied.moved == ("its staged rows are not all there" if value == "z" else None)
        cut = newest_view_cut(place.store, "b")
        assert cut is not None
        rows = read_view(spark, place.store, cut)
        assert rows.columns == ["i d,;{}()=.", "a\tb", "c`\nd"]
        assert Counter(map(str, map(tuple, rows.collect()))) == Counter(str((n, [n], value)) for n in range(3))


@pytest.mark.full
@pytest.mark.parametrize("new_columns", [False, True])
def test_a_killed_step_leaves_the_view_old_or_new(place: Edited, *, new_columns: bool) -> None:
    """A reader sees the old rows until there is a cut, and the same command then does all of it."""
    config, spark = place.config, place.spark
    second = "SELECT id, 'y' AS v, id AS more FROM t" if new_columns else "SELECT id, 'y' AS v FROM t"
    place.edit(second)

    def killed_at(failpoint: str, work: Any) -> None:
        def interrupt(name: str) -> None:
            if name == failpoint:
                raise KeyboardInterrupt(name)

        with watched(interrupt), pytest.raises(KeyboardInterrupt, match=failpoint):
            work(config, "a", spark)

    killed_at("view.after_staged", preview)
    assert newest_preview(place.store, "a") is None
    with pytest.raises(ConfigError, match="no preview"):
        apply_preview(config, "a", WITHOUT)
    preview(config, "a", spark)
    assert len(place.previews()) == 2
    for failpoint in ("cycle.after_tables", "cycle.after_sync"):
        killed_at(failpoint, apply_preview)
        assert place.rows() == place.answer(FIRST)
    assert refresh(config, "a", spark)[0].stands_still is None, "by the old definition, with the old columns"
    assert place.rows() == place.answer(FIRST)
    preview(config, "a", spark)
    killed_at("cycle.after_cut", apply_preview)
    assert place.rows() == place.answer(second)
    assert apply_preview(config, "a", spark).done == "applied"
    assert place.rows() == place.answer(second)
    killed_at("cycle.after_tables", take_back)
    assert place.rows() == place.answer(second)
    take_back(config, "a", spark)
    assert place.rows() == place.answer(FIRST)


@pytest.mark.full
def test_status_and_the_command_say_how_to_go_on(
    place: Edited, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page has a line for an edited view; the command refuses what does not go together."""
    place.edit("SELECT id, 'y' AS v FROM t")
    state = lake_status(place.config)
    assert "edited, not applied: see what would change with `lakeproof replace a`" in page(state)
    assert to_json(state)["views"]["a"]["not_applied"] is not None
    file = tmp_path / "w.yaml"
    file.write_text(
        f"lake: {place.config.lake}\nsources:\n  shop: {{dsn: host=nowhere dbname=app user=u, tables: [public.t]}}\n"
        "views:\n  a: {sql: a.sql, reads: {t: shop/public.t}}\n",
        encoding="utf-8",
    )
    assert main(["-c", str(file), "replace", "a", "--preview", "x"]) == 2
    assert "--preview names what --apply commits" in capsys.readouterr().err
