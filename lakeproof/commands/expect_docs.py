"""Writes the results of expectations as pages of Great Expectations' data docs: one for each table, and an index.

Evaluating does not belong here (`expect_gx.py`): what arrives here has no value that may not be shown. A page is replaced by
the next evaluation of its table. It is one file that loads nothing from elsewhere, and runs no script: Great Expectations'
own pages load both from other companies' servers.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from lakeproof.commands.expect_gx import great_expectations
from lakeproof.config.model import Config
from lakeproof.errors import LakeError
from lakeproof.lsn import Lsn
from lakeproof.names import TableName
from lakeproof.storage.open import open_store
from lakeproof.storage.times import now_text

_INDEX = "index.html"
_PAGE = ".html"
# Nothing but what is in the page itself: nobody hears who reads it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
_HEAD = f"""<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<meta charset="utf-8">
<style>body {{font: 15px/1.5 sans-serif; margin: 2em}} table {{border-collapse: collapse}}
td, th {{border: 1px solid #ccc; padding: .3em .6em; text-align: left; vertical-align: top}}
nav, script, img, iframe {{display: none}} ul {{list-style: none; padding-left: 1em}}</style>"""


def write_data_docs(
    config: Config, source: str, position: Lsn, results: Mapping[TableName, Any]
) -> dict[TableName, str]:
    """Write a page for each table's results and the index; return where each page is. Raises LakeError if it can't."""
    folder = config.data_docs.folder
    if folder is None:
        return {}
    store = open_store(config.location_of(folder))
    pages: dict[TableName, str] = {}
    try:
        for table, result in results.items():
            key = f"{source}/{table.key}{_PAGE}"
            title = f"{source}: {table} at {position}, evaluated {now_text()}"
            store.put(key, _page(result, title).encode())
            base = config.data_docs.url
            pages[table] = store.url(key) if base is None else f"{base.rstrip('/')}/{quote(key)}"
        store.put(
            _INDEX, _index(sorted(key for key in store.list("") if key.endswith(_PAGE) and key != _INDEX)).encode()
        )
    except OSError as error:
        reason = f"it can't be written to ({error.strerror})"
        raise LakeError(f"data docs {folder}", reason, "see to data_docs.folder and its permissions") from error
    return pages


def _for_page(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return one expectation's result as a page takes it: texts are HTML there, and percentages are presupposed."""
    escaped = {key: html.escape(value) if isinstance(value, str) else value for key, value in given.items()}
    if "partial_unexpected_list" in given:
        escaped["partial_unexpected_list"] = list(map(html.escape, given["partial_unexpected_list"]))
    if "unexpected_percent" not in given:
        escaped.pop("unexpected_count", None)
    return escaped


def _page(result: Any, title: str) -> str:
    for each in result.results:
        each.result = _for_page(each.result)
    with great_expectations():
        from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
        from great_expectations.render.view.view import DefaultJinjaPageView

        document = ValidationResultsPageRenderer().render(result)
        page = DefaultJinjaPageView().render(document)  # type: ignore[no-untyped-call]  # it has no types there
    before, head, after = page.partition("<head>")
    heading = f"<h1>{html.escape(title)}</h1>"
    top, body, rest = after.partition("<body>")
    return f"{before}{head}{_HEAD}{top}{body}{heading}{rest}"


def _index(keys: list[str]) -> str:
    links = (f'<li><a href="{html.escape(quote(key))}">{html.escape(key.removesuffix(_PAGE))}</a></li>' for key in keys)
    body = f"<h1>Expectations</h1><ul>{''.join(links)}</ul>"
    return f"<!DOCTYPE html><html><head>{_HEAD}<title>Expectations</title></head><body>{body}</body></html>"
