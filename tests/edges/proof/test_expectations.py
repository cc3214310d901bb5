"""Expectations of a real lake: from the configuration, and from a suite that Great Expectations wrote; what results show."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakeproof.commands.bootstrap import bootstrap
from lakeproof.commands.compact import compact
from lakeproof.commands.expect import expect
from lakeproof.config.load import ConfigFileError, load
from lakeproof.events import Stop, silent
from lakeproof.expectations.evaluate import _great_expectations
from lakeproof.names import TableName
from tests.support.servers.fix_postgres import Database
from tests.support.shell.sample import password_of, write_source

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.slow]
_USERS = TableName("public", "users")
_ORDERS = TableName("public", "orders")
_SECRET, _SHOWN = "ada@example.org", "<script>alert(1)</script>"
_REST = """\
    tables: [public.users, public.orders]
    table:
      public.users:
        show_values: true
        secret: [email]
        expectations:
          - {type: expect_column_values_to_be_in_set, kwargs: {column: plan, value_set: [free]}, name: plans}
          - {type: expect_column_values_to_match_regex, kwargs: {column: email, regex: "^x"}, severity: warn}
          - {type: expect_column_distinct_values_to_equal_set, kwargs: {column: email, value_set: [b]}}
          - {type: expect_compound_columns_to_be_unique, kwargs: {column_list: [plan, email]}}
          - {type: expect_column_max_to_be_between, kwargs: {column: age, max_value: 20}}
          - {type: expect_column_values_to_not_be_null, kwargs: {column: nowhere}}
          - {type: expect_table_row_count_to_equal, kwargs: {value: 41}}
      public.orders:
        expectations: suites/orders.json
"""


def _suite() -> str:
    """Return a suite as Great Expectations itself writes it."""
    with _great_expectations():
        import great_expectations as gx

        unique = {"type": "expect_column_values_to_be_unique", "kwargs": {"column": "id"}}
        between = {"type": "expect_column_values_to_be_between", "kwargs": {"column": "amount", "max_value": 7}}
        suite = gx.ExpectationSuite(name="orders", expectations=[unique, between | {"severity": "warning"}])
        return json.dumps(suite.to_json_dict())


def test_results_have_counts_and_the_values_that_may_be_shown(
    database: Database, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of a column are shown if its table says so and none of the expectation's columns is secret."""
    database.execute(
        "CREATE TABLE users (id int PRIMARY KEY, plan text, email text, age int)",
        "INSERT INTO users SELECT n, 'free', 'ada@example.org', n FROM generate_series(1, 40) AS n",
        "INSERT INTO users SELECT n, '<script>alert(1)</script>' || n, 'ada@example.org', n"
        " FROM generate_series(41, 60) AS n",
        "CREATE TABLE orders (id int PRIMARY KEY, amount int)",
        "INSERT INTO orders SELECT n, n FROM generate_series(1, 10) AS n",
        "CREATE PUBLICATION pub FOR TABLE users, orders",
    )
    monkeypatch.setenv("LP_SHELL_PASSWORD", password_of(database))
    monkeypatch.setenv("GX_ANALYTICS_ENABLED", "true")
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "orders.json").write_text(_suite(), encoding="utf-8")
    config = load(write_source(tmp_path, database, _REST))
    bootstrap(config, "shop")
    compact(config, "shop", spark, silent, Stop())
    report = expect(config, "shop", None, spark)

    plans, emails, distinct, both, age, nowhere, rows = report.tables[_USERS]
    assert (plans.name, plans.passed, plans.counts["unexpected_count"]) == ("plans", False, 20)
    assert set(plans.values) <= {f"{_SHOWN}{n}" for n in range(41, 61)}
    assert len(plans.values) == 10
    assert (emails.passed, emails.counts["unexpected_count"], emails.values) == (False, 60, ())
    assert (distinct.passed, distinct.observed, distinct.values) == (False, None, ())
    assert (both.passed, both.counts["unexpected_count"], both.values) == (False, 40, ())
    assert (age.passed, age.observed) == (False, "60")
    assert "error" in nowhere.counts
    assert not nowhere.passed
    assert (rows.passed, rows.observed) == (False, "60")
    assert plans.shortfall == f"20 unexpected values of 60: {', '.join(plans.values)}"
    assert distinct.shortfall == "1 unexpected value"
    assert age.shortfall == "it is not met: 60 was observed"
    assert nowhere.shortfall.startswith("it could not be computed")

    unique, amounts = report.tables[_ORDERS]
    assert (unique.passed, amounts.passed, unique.shortfall) == (True, False, "")
    # This table shows no values.
    assert (amounts.counts["unexpected_count"], amounts.values) == (3, ())

    assert _SECRET not in repr(report)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense", "is not JSON"),
        ('{"expectations": 1}', "has no list"),
        (
            '{"expectations": [{"type": "unexpected_rows_expectation", "kwargs": {}}]}',
            "expectation 1, which type must be",
        ),
        ('{"expectations": [{"type": "expect_x", "severity": "fatal"}]}', "whose severity is none of"),
        (None, "can't be read (No such file or directory)"),
    ],
)
def test_a_file_that_is_no_suite_is_a_mistake_of_the_configuration(tmp_path: Path, text: str | None, says: str) -> None:
    """With its line, as every other mistake."""
    (tmp_path / "suites").mkdir()
    if text is not None:
        (tmp_path / "suites" / "orders.json").write_text(text, encoding="utf-8")
    path = tmp_path / "lakeproof.yaml"
    path.write_text("lake: lake\nsources:\n  shop:\n    dsn: host=localhost dbname=d\n" + _REST, encoding="utf-8")
    with pytest.raises(ConfigFileError, match=r'line 19: sources.shop.table."public.orders".expectations') as error:
        load(path)
    assert says in str(error.value)
