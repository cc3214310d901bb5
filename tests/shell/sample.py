"""A configuration with two sources, odd names and two views, written into a folder of the test's."""

from __future__ import annotations

from pathlib import Path

_YAML = """\
lake: lake
sources:
  shop:
    dsn: {dsn}
    password: {{env: W2D_SHELL_PASSWORD}}
    tables: [shop.orders, 'shop."order lines"']
    table:
      shop.orders:
        description: One row per order.
        owners: ["team:shop"]
        expectations:
          - {{type: expect_column_values_to_be_unique, kwargs: {{column: id}}}}
          - {{type: expect_column_values_to_be_unique, kwargs: {{column: id}}, severity: warn}}
          - {{type: expect_compound_columns_to_be_unique, kwargs: {{column_list: [id, "a b"]}}}}
    compaction: {{interval_s: 90}}
  crm:
    dsn: {{env: W2D_SHELL_CRM}}
    publication: crm
    slot: crm
    tables: [public.customers]
  unlisted:
    dsn: {{env: W2D_SHELL_UNLISTED}}
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


def write_sample(folder: Path, dsn: str = "host=127.0.0.1 port=1 dbname=shop user=wal2delta") -> Path:
    """The configuration's path."""
    (folder / "q.sql").write_text("SELECT * FROM o\n", encoding="utf-8")
    path = folder / "wal2delta.yaml"
    path.write_text(_YAML.format(dsn=dsn), encoding="utf-8")
    return path
