"""Configurations for tests: two sources with odd names and two views that nobody answers to, and one of a real database."""

from __future__ import annotations

from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.support.servers.fix_postgres import Database

_YAML = """\
lake: lake
sources:
  shop:
    dsn: {dsn}
    password: {{env: LP_SHELL_PASSWORD}}
    tables: [shop.orders, 'shop."order lines"']
    daily: [shop.ord*rs]
    table:
      shop.orders:
        description: One row per order.
        owners: ["team:shop"]
        expectations:
          - {{type: expect_column_values_to_be_unique, kwargs: {{column: id}}}}
          - {{type: expect_column_values_to_be_unique, kwargs: {{column: id}}, severity: warn}}
          - {{type: expect_compound_columns_to_be_unique, kwargs: {{column_list: [id, "a b"]}}}}
    compaction: {{mode: scheduled, interval_s: 90}}
  crm:
    dsn: {{env: LP_SHELL_CRM}}
    publication: crm
    slot: crm
    owners: ["team:crm"]
    tables: [public.customers]
  unlisted:
    dsn: {{env: LP_SHELL_UNLISTED}}
views:
  per_customer:
    sql: q.sql
    reads: {{o: shop/shop.orders, c: crm/public.customers}}
    description: Orders of each customer.
    owners: ["team:shop"]
  copy:
    sql: q.sql
    reads: {{o: shop/shop.orders}}
"""
_SOURCE = """\
lake: lake
sources:
  shop:
    dsn: {dsn}
    password: {{env: LP_SHELL_PASSWORD}}
    publication: {publication}
    slot: {slot}
"""


def write_sample(folder: Path, dsn: str = "host=127.0.0.1 port=1 dbname=shop user=lakeproof") -> Path:
    """The configuration's path."""
    (folder / "q.sql").write_text("SELECT * FROM o\n", encoding="utf-8")
    path = folder / "lakeproof.yaml"
    path.write_text(_YAML.format(dsn=dsn), encoding="utf-8")
    return path


def write_source(
    folder: Path, database: Database, rest: str, port: int | None = None, publication: str = "pub"
) -> Path:
    """The path of a configuration whose source `shop` is the database, or what answers at `port` in its place.

    `rest` goes on where the source's tables stand. The password comes from LP_SHELL_PASSWORD, which the test sets.
    """
    parts = conninfo_to_dict(database.dsn)
    del parts["password"]
    dsn = make_conninfo("", **parts | ({} if port is None else {"port": port}))
    path = folder / "lakeproof.yaml"
    path.write_text(_SOURCE.format(dsn=dsn, slot=database.name, publication=publication) + rest, encoding="utf-8")
    return path


def password_of(database: Database) -> str:
    """The value that LP_SHELL_PASSWORD needs for `write_source`'s configuration."""
    return str(conninfo_to_dict(database.dsn)["password"])
