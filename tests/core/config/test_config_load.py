"""The configuration file: what is read, and that each mistake is named with its line, its path and what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError
from lakeproof.errors import ConfigError
from lakeproof.names import TableName

MINIMAL = """\
lake: ./lake
sources:
  shop:
    dsn: "host=127.0.0.1 dbname=shop user=lakeproof"
"""

FULL = """\
lake: ./lake
proof_interval: off
sources:
  shop:
    dsn: "host=127.0.0.1 port=5432 dbname=shop user=lakeproof"
    password: {env: SHOP_PASSWORD}
    publication: pub
    slot: slot_1
    tables: [shop.customers, shop.orders, '"my schema"."odd.name"']
    table:
      shop.orders:
        expectations: [{type: expect_column_values_to_be_unique, kwargs: {column: id}, severity: warn}]
        owners: ["team:data", "a@example.org"]
        numeric: {weight: [20, 6]}
        as_text: [note]
        key: [id, line]
        description: the orders
    drain: {flush_rows: 7, flush_interval_s: 0.5, progress_interval_s: 3}
    snapshot: {connections: 4}
    compaction:
    buckets: 16
views:
  revenue: {sql: views/revenue.sql, reads: {orders: shop/shop.orders, odd: 'shop/"my schema"."odd.name"'}}
spark: {master: "local[2]", driver_memory: 512m, conf: {spark.a: true, spark.b: 4, spark.c: "x", spark.d: 0.5}}
"""


def write(folder: Path, text: str | bytes) -> Path:
    """A configuration in `folder`, with one view's SQL beside it."""
    (folder / "views").mkdir(exist_ok=True)
    (folder / "views" / "revenue.sql").write_text("SELECT * FROM orders")
    file = folder / "lakeproof.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def mistakes(folder: Path, text: str | bytes) -> list[str]:
    """The mistakes in `text`, without the folder's name."""
    with pytest.raises(ConfigFileError) as caught:
        load(write(folder, text))
    return [line.removeprefix(f"{folder}/") for line in caught.value.lines()]


def source(line: str) -> str:
    """The minimal file with one more line in its source; that line is line 5."""
    return f"{MINIMAL}    {line}\n"


def test_defaults_follow_from_the_source_name(tmp_path: Path) -> None:
    """Publication and slot are named after the source; relative paths begin at the file."""
    config = load(write(tmp_path, MINIMAL))
    shop = config.sources["shop"]
    assert (shop.publication, shop.slot, shop.tables) == ("lakeproof_shop", "lakeproof_shop", ())
    assert config.lake == str(tmp_path / "lake")
    assert config.path == tmp_path / "lakeproof.yaml"


def test_every_key_arrives(tmp_path: Path) -> None:
    """A file that says something of everything."""
    config = load(write(tmp_path, FULL))
    shop = config.sources["shop"]
    orders = shop.table_config(TableName("shop", "orders"))
    assert (shop.publication, shop.slot, shop.buckets) == ("pub", "slot_1", 16)
    assert shop.tables[2] == TableName("my schema", "odd.name")
    assert (orders.key, orders.numeric, orders.as_text) == (("id", "line"), {"weight": (20, 6)}, ("note",))
    assert orders.expectations[0]["severity"] == "warn"
    assert (shop.drain.flush_rows, shop.drain.flush_interval_s, shop.snapshot.connections) == (7, 0.5, 4)
    assert shop.compaction.threads == 2
    assert config.views["revenue"].sql() == "SELECT * FROM orders"
    assert config.views["revenue"].reads["odd"] == ("shop", TableName("my schema", "odd.name"))
    assert config.spark.conf == {"spark.a": "true", "spark.b": "4", "spark.c": "x", "spark.d": "0.5"}
    assert config.proof_interval == "off"


def test_a_table_without_settings_has_the_defaults(tmp_path: Path) -> None:
    """Asking for its settings is no error."""
    shop = load(write(tmp_path, MINIMAL)).sources["shop"]
    assert shop.table_config(TableName("public", "any")).key == ()


@pytest.mark.parametrize("lake", ["/data/lake", "file:///data/lake"])
def test_an_absolute_lake_stays_as_it_is(tmp_path: Path, lake: str) -> None:
    """Only relative paths move."""
    assert load(write(tmp_path, MINIMAL.replace("./lake", lake))).lake == lake


def test_yaml_11_surprises_are_texts(tmp_path: Path) -> None:
    """`off`, `yes` and `1:30` mean what they look like."""
    config = load(write(tmp_path, FULL.replace("the orders", "yes").replace("key: [id, line]", "key: ['1:30', no]")))
    orders = config.sources["shop"].table_config(TableName("shop", "orders"))
    assert (orders.description, orders.key) == ("yes", ("1:30", "no"))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("drain: {flush_rows: 0}", "sources.shop.drain.flush_rows: must be at least 1"),
        ("drain: {flush_rows: '5'}", "sources.shop.drain.flush_rows: must be a whole number"),
        ("drain: {flush_rows: true}", "sources.shop.drain.flush_rows: must be a whole number"),
        ("drain: {flush_rows: 1.5}", "sources.shop.drain.flush_rows: must be a whole number"),
        ("drain: {flush_rows: }", "sources.shop.drain.flush_rows: must be a whole number"),
        ("drain: {flush_interval_s: 0}", "sources.shop.drain.flush_interval_s: must be more than 0"),
        ("drain: {flush_interval_s: 601}", "sources.shop.drain.flush_interval_s: must be at most 600"),
        ("drain: {flush_interval_s: 1s}", "sources.shop.drain.flush_interval_s: must be a number"),
        ("drain: {flush_interval_s: 1e999}", "sources.shop.drain.flush_interval_s: must be a finite number"),
        ("drain: {flsh_rows: 5}", "sources.shop.drain.flsh_rows: unknown key; did you mean flush_rows?"),
        ("drain: 5", "sources.shop.drain: must be a mapping (key: value)"),
        ("drain: []", "sources.shop.drain: must be a mapping (key: value)"),
        ("snapshot: {connections: 65}", "sources.shop.snapshot.connections: must be at most 64"),
        ("compaction: {threads: 0}", "sources.shop.compaction.threads: must be at least 1"),
        ("buckets: 0", "sources.shop.buckets: must be at least 1"),
        ("slot: Shop", "sources.shop.slot: is not a slot's name: 1 to 63 small letters, digits and _"),
        ("slot: a-b", "sources.shop.slot: is not a slot's name: 1 to 63 small letters, digits and _"),
        ("slot: ''", "sources.shop.slot: is not a slot's name: 1 to 63 small letters, digits and _"),
        (f"slot: {'a' * 64}", "sources.shop.slot: is not a slot's name: 1 to 63 small letters, digits and _"),
        ("slot: 5", "sources.shop.slot: must be a text (put quotes around it)"),
        (f"publication: {'ü' * 32}", "sources.shop.publication: is not a publication's name: 1 to 63 octets"),
        ("name: other", "sources.shop.name: unknown key; known here: buckets, compaction, "),
        ("tables: shop.orders", "sources.shop.tables: must be a list of tables"),
        ("tables: [orders]", "sources.shop.tables[0]: not a table: 'orders' (the form is schema.table"),
        ("tables: [a.b, a.b.c]", "sources.shop.tables[1]: not a table: 'a.b.c'"),
        ("tables: [a.b, 5]", "sources.shop.tables[1]: must be a table or a pattern: schema.table or schema.*"),
        ("tables: [a.b, c.d, a.b]", "sources.shop.tables: names a.b twice"),
        ("drain: {messages: true}", "sources.shop.drain.messages: must be false, or a list of the prefixes"),
        ("drain: {messages: [1]}", "sources.shop.drain.messages: must be false, or a list of the prefixes"),
        ("drain: {messages: [a, a]}", "sources.shop.drain.messages: names a twice"),
        ("tables: ['*.a']", "sources.shop.tables[0]: not a table: '*.a'"),
        ("exclude: [a.*]", "sources.shop.exclude[0]: leaves nothing out: `tables` has no pattern for schema a"),
        ("table: {a.b: {keys: [id]}}", 'sources.shop.table."a.b".keys: unknown key; did you mean key?'),
        ("table: {a.b: {key: id}}", 'sources.shop.table."a.b".key: must be a list'),
        ("table: {a.b: {key: [id, id]}}", 'sources.shop.table."a.b".key: names id twice'),
        ("table: {a.b: {key: ['']}}", 'sources.shop.table."a.b".key[0]: is not a column\'s name'),
        ("table: {a.b: {numeric: {x: [39, 0]}}}", 'sources.shop.table."a.b".numeric.x: must be [precision, scale]'),
        ("table: {a.b: {numeric: {x: [5, 6]}}}", 'sources.shop.table."a.b".numeric.x: must be [precision, scale]'),
        ("table: {a.b: {numeric: {x: [5]}}}", 'sources.shop.table."a.b".numeric.x[1]: is missing'),
        ("table: {a.b: {numeric: {x: [5, 1, 1]}}}", 'sources.shop.table."a.b".numeric.x: must have 2 entries'),
        ("table: {a.b: {numeric: {x: [5, 1]}, as_text: [x]}}", 'sources.shop.table."a.b": has x under both'),
        ("table: {a.b: {owners: [data]}}", 'sources.shop.table."a.b".owners[0]: is not an owner'),
        ("table: {a.b: {expectations: [x]}}", 'sources.shop.table."a.b".expectations[0]: must be {type: expect_'),
        ("table: {a.b: {expectations: [{type: x}]}}", 'sources.shop.table."a.b".expectations[0]: type must be'),
        (
            "table: {a.b: {expectations: [{type: expect_x, kwargs: 1}]}}",
            'sources.shop.table."a.b".expectations[0]: kwargs must be a mapping',
        ),
        (
            "table: {a.b: {expectations: [{type: expect_x, severity: bad}]}}",
            'sources.shop.table."a.b".expectations[0]: severity must be warn or error',
        ),
        ("table: {ab: {}}", "sources.shop.table.ab: not a table: 'ab'"),
        ("table: {a.b: {}, '\"a\".b': {}}", 'sources.shop.table."\\"a\\".b": is the same table as an earlier key'),
        (
            "password: secret",
            "sources.shop.password: must be {env: NAME} or {file: PATH}",
        ),
        ("password: {env: 5}", "sources.shop.password: must be {env: NAME} or {file: PATH}"),
        ("password: {env: 'A B'}", "sources.shop.password: env must name an environment variable"),
        ("password: {var: A}", "sources.shop.password: must be {env: NAME} or {file: PATH}"),
    ],
)
def test_a_wrong_value_in_a_source_is_named_with_its_line(tmp_path: Path, line: str, expected: str) -> None:
    """The path leads to the value, the phrase says what it must be."""
    actual = mistakes(tmp_path, source(line))
    place = "4" if expected.startswith("sources.shop.dsn") else "5"
    assert len(actual) == 1
    assert actual[0].startswith(f"lakeproof.yaml:{place}: {expected}")


@pytest.mark.parametrize(
    ("dsn", "expected"),
    [
        ("host=a", "names no database (dbname=…)"),
        ("''", "is not"),
        ("nonsense", "is not a libpq connection string or URI"),
        ("hots=a dbname=b", "is not a libpq connection string or URI"),
        ("host=a dbname=b password=hunter2", "carries a secret (password)"),
        ("postgresql://u:hunter2@a/b", "carries a secret (password)"),
        ("host=a dbname=b sslpassword=hunter2", "carries a secret (sslpassword)"),
        ("host=a dbname=b password=hunter2 hunter2", "is not a libpq connection string or URI"),
        ("host=a dbname=b replication=database", "sets replication, which lakeproof sets itself"),
        ("host=a dbname=b client_encoding=latin1", "sets client_encoding, which lakeproof sets itself"),
        ("{env: 9}", "must be {env: NAME} or {file: PATH}; secrets do not stand in this file"),
        ("{env: A, password: b}", "must be {env: NAME} or {file: PATH}; secrets do not stand in this file"),
        ("{env: A-B}", "env must name an environment variable"),
        ("[a]", "must be a connection string, {env: NAME} or {file: PATH}"),
        ("", "is missing"),
    ],
)
def test_a_wrong_dsn_is_refused_without_repeating_it(tmp_path: Path, dsn: str, expected: str) -> None:
    """The message contains no secret of the DSN."""
    text = MINIMAL.replace('"host=127.0.0.1 dbname=shop user=lakeproof"', dsn)
    actual = mistakes(tmp_path, text)
    assert len(actual) == 1
    assert actual[0].startswith("lakeproof.yaml:4: sources.shop.dsn: ")
    assert expected in actual[0] or dsn == "''"
    assert "hunter2" not in actual[0]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("lake: ./lake", "lake:", "1: lake: is missing"),
        ("lake: ./lake", "lake: ''", "1: lake: must be a folder, a file:// URL"),
        ("lake: ./lake", "lake: 5", "1: lake: must be a folder, a file:// URL"),
        ("lake: ./lake", "lake: ~/lake", "1: lake: begins with ~, which is not expanded"),
        ("lake: ./lake", "lake: ftp://host/lake", "1: lake: is at ftp://, which is not supported"),
        ("lake: ./lake", "lake: s3://me:word@bucket/lake", "1: lake: must not carry a user, a password or a query"),
        ("lake: ./lake", "lake: s3://bucket:9000/lake", "1: lake: must name a bucket"),
        ("lake: ./lake", "storage: {regoin: x}\nlake: ./lake", "1: storage.regoin: unknown key; did you mean region?"),
        (
            "lake: ./lake",
            "storage: {endpoint: 'http://a:9000'}\nlake: ./lake",
            "1: storage: has an endpoint with http://",
        ),
        (
            "lake: ./lake",
            "storage: {endpoint: 'https://a:b@c'}\nlake: ./lake",
            "1: storage.endpoint: must be a URL without",
        ),
        (
            "lake: ./lake",
            "storage: {secret_access_key: x}\nlake: ./lake",
            "1: storage.secret_access_key: would be a secret",
        ),
        ("lake: ./lake", "storage: {access_key_id: x}\nlake: ./lake", "1: storage.access_key_id: would be a secret"),
        ("lake: ./lake", "storage: {session_token: x}\nlake: ./lake", "1: storage.session_token: would be a secret"),
        ("lake: ./lake", "lkae: ./lake", "1: lkae: unknown key; did you mean lake?"),
        ("lake: ./lake", "path: x\nlake: ./lake", "1: path: unknown key"),
        (
            "proof_interval: off",
            "proof_interval: weekly",
            "2: proof_interval: must be one of 'hourly', 'daily' or 'off'",
        ),
        ("  shop:\n", "  Shop:\n", "4: sources.Shop: is not a name"),
        ("  shop:\n", "  my-shop:\n", "4: sources.my-shop: is not a name"),
        ("  shop:\n", "  9shop:\n", "4: sources.9shop: is not a name"),
        ("  shop:\n", f"  {'s' * 54}:\n", f"4: sources.{'s' * 54}: is not a name"),
        ("  shop:\n", "  views:\n", "4: sources.views: is taken by the views' folder"),
        ("  revenue: {", "  cuts: {", "23: views.cuts: is taken by the views' cuts"),
        ("  revenue: {", "  Revenue: {", "23: views.Revenue: is not a name"),
        ("sql: views/revenue.sql", "sql: views/none.sql", "23: views.revenue.sql: can't be read: "),
        ("sql: views/revenue.sql", "sql: views", "23: views.revenue.sql: can't be read: "),
        ("sql: views/revenue.sql", "sql: ", "23: views.revenue.sql: is missing"),
        ("sql: views/revenue.sql", "sql: 7", "23: views.revenue.sql: must be the path of a .sql file"),
        ("sql: views/revenue.sql", "query: x, sql: views/revenue.sql", "23: views.revenue.query: unknown key"),
        (
            "orders: shop/shop.orders",
            "orders: shp/shop.orders",
            "23: views.revenue.reads.orders: reads from shp, which",
        ),
        (
            "orders: shop/shop.orders",
            "orders: shop/shop.none",
            "23: views.revenue.reads.orders: shop.none is not among",
        ),
        (
            "orders: shop/shop.orders",
            "orders: shop.orders",
            "23: views.revenue.reads.orders: must be source/schema.table",
        ),
        ("orders: shop/shop.orders", "orders: shop/orders", "23: views.revenue.reads.orders: not a table: 'orders'"),
        ("orders: shop/shop.orders", "a-b: shop/shop.orders", "23: views.revenue.reads.a-b: is not a name for SQL"),
        ("odd: ", "ORDERS: ", "23: views.revenue.reads.ORDERS: differs from an earlier name in case only"),
        ("shop.orders:\n", "shop.order:\n", '11: sources.shop.table."shop.order": shop.order is not among'),
        ("driver_memory: 512m", "driver_memory: much", "24: spark.driver_memory: is not an amount of memory"),
        ('master: "local[2]"', "master: ''", "24: spark.master: must not be empty"),
        ("spark.a: true", "a: true", "24: spark.conf: holds 'a', which is no setting of Spark's"),
        ("spark.a: true", "spark.a: [1]", "24: spark.conf.spark\\.a: must be a text"),
        ("spark: {", "spark: 5 #{", "24: spark: must be a mapping"),
    ],
)
def test_a_wrong_value_elsewhere_is_named_with_its_line(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """The lake, names, views and Spark."""
    assert old in FULL
    actual = mistakes(tmp_path, FULL.replace(old, new, 1))
    requested = "lakeproof.yaml:" + expected.replace("spark\\.a", '"spark.a"')
    assert any(line.startswith(requested) for line in actual), actual


def test_all_mistakes_are_named_at_once_in_the_order_of_lines(tmp_path: Path) -> None:
    """The error's one line has all mistakes, too."""
    text = "lake:\nsources:\n  shop:\n    dsn: 'host=a'\n    drain: {flush_rows: 0, x: 1}\nviews:\n  v: {}\n"
    text += "spark: {driver_memory: 1}\n"
    actual = mistakes(tmp_path, text)
    assert [line.split(": ")[1] for line in actual] == [
        "lake",
        "sources.shop.dsn",
        "sources.shop.drain.flush_rows",
        "sources.shop.drain.x",
        "views.v.reads",
        "views.v.sql",
        "spark.driver_memory",
    ]
    with pytest.raises(ConfigFileError) as caught:
        load(tmp_path / "lakeproof.yaml")
    assert "\n" not in str(caught.value)
    assert all(f"line {n}" in str(caught.value) for n in (1, 4, 5, 7, 8))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("tables: [a.*]", "exclude: [b.c]"), "exclude[0]: leaves nothing out: `tables` has no pattern for schema b"),
        (("tables: [a.*, a.b]", "exclude: [a.b*]"), "exclude[0]: leaves out a.b, which `tables` names"),
        (("tables: [a.*]", "table: {b.c: {}}"), 'table."b.c": b.c is not among sources.shop.tables'),
        (("tables: [a.*]", "exclude: [a.b]", "table: {a.b: {}}"), 'table."a.b": a.b is not among sources.shop.tables'),
    ],
)
def test_patterns_that_contradict_the_rest_are_named(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    """The error names the contradicting entry."""
    (actual,) = mistakes(tmp_path, source("\n    ".join(lines)))
    assert f"sources.shop.{expected}" in actual


def test_patterns_and_names_are_distinguished(tmp_path: Path) -> None:
    """A table that has settings, or that a view reads, may be matched by a pattern."""
    lines = ("tables: [a.*, b.c]", "exclude: [a.tmp_*, a.log]", "table: {a.orders: {key: [id]}}")
    loaded = load(write(tmp_path, source("\n    ".join(lines)))).sources["shop"]
    assert (loaded.tables, list(map(str, loaded.patterns))) == ((TableName("b", "c"),), ["a.*"])
    assert list(map(str, loaded.exclude)) == ["a.tmp_*", "a.log"]
    assert loaded.table_config(TableName("a", "orders")).key == ("id",)


def test_two_sources_never_share_a_slot_of_one_server(tmp_path: Path) -> None:
    """A slot's name belongs to the server, so two databases of it can't share a slot either."""
    second = '  b:\n    dsn: "host=127.0.0.1 dbname=other"\n    slot: lakeproof_shop\n'
    actual = mistakes(tmp_path, MINIMAL + second)
    text = "lakeproof_shop is the slot of sources.shop on the same server; each source needs its own"
    assert actual == [f"lakeproof.yaml:7: sources.b.slot: {text}"]


def test_two_servers_may_have_slots_of_one_name(tmp_path: Path) -> None:
    """Another port means another server."""
    second = '  b:\n    dsn: "host=127.0.0.1 port=5433 dbname=other"\n    slot: lakeproof_shop\n'
    assert len(load(write(tmp_path, MINIMAL + second)).sources) == 2


@pytest.mark.parametrize("text", ["", "lake: x\nsources:\n", "lake: x\nsources: {}\n", "lake: x\n"])
def test_a_file_without_a_source_is_refused(tmp_path: Path, text: str) -> None:
    """A file without a source leaves nothing to do."""
    assert any("sources" in line for line in mistakes(tmp_path, text))


def test_the_environment_is_not_read_while_loading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A code location loads with no secret present."""
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    assert load(write(tmp_path, FULL)).sources


def test_the_file_is_found_by_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LAKEPROOF_CONFIG names it if no path is given."""
    monkeypatch.setenv("LAKEPROOF_CONFIG", str(write(tmp_path, MINIMAL)))
    assert load().path == tmp_path / "lakeproof.yaml"


def test_the_file_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`lakeproof.yaml` here, if neither says otherwise."""
    monkeypatch.delenv("LAKEPROOF_CONFIG", raising=False)
    write(tmp_path, MINIMAL)
    monkeypatch.chdir(tmp_path)
    assert load().lake == str(tmp_path / "lake")


@pytest.mark.parametrize("variable", ["", "/nowhere/lakeproof.yaml"])
def test_a_file_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """The line has the two ways to name a file."""
    monkeypatch.setenv("LAKEPROOF_CONFIG", variable)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no such file.*-c FILE or LAKEPROOF_CONFIG"):
        load()


def test_a_folder_is_no_configuration(tmp_path: Path) -> None:
    """It is refused."""
    with pytest.raises(ConfigError, match="there is no such file"):
        load(tmp_path)
