"""External Delta tables that views read: found by place or name, and pinned to their newest version.

Computing with them is in `refresh`, their changes in `since_cut`; `newest_external` in `lakeproof.lake.delta.log.commits`
looks for a newer version without Spark.
"""

from __future__ import annotations

import threading
from urllib.parse import unquote

from pyspark.sql import SparkSession

from lakeproof.config.model import Config
from lakeproof.config.section.external_table import ExternalTable
from lakeproof.errors import LakeError
from lakeproof.lake.columns import quoted
from lakeproof.lake.delta.log.commits import NO_VERSION, newest_external
from lakeproof.lake.delta.versions import TableDetail, table_detail
from lakeproof.lake.records.views.cuts import ExternalVersion
from lakeproof.lake.spark.failures import reading, reason_of

_CONVERT = "write it as a Delta table (CONVERT TO DELTA takes a folder of Parquet files), or bind the name to another"


class ExternalTables:
    """The external tables of one refresh: each is pinned once, so that all views of the refresh read the same version."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._pinned: dict[str, ExternalVersion | LakeError] = {}
        self._lock = threading.Lock()

    def keep(self, place: str, version: ExternalVersion) -> bool:
        """Pin a table to the version that is given; False if it is pinned to another."""
        with self._lock:
            return self._pinned.setdefault(place, version) == version

    def pin(self, session: SparkSession, table: ExternalTable) -> ExternalVersion:
        """Return the table's version in this refresh; raises LakeError if it is none, or can't be read."""
        with self._lock:
            if str(table) not in self._pinned:
                try:
                    self._pinned[str(table)] = _pin(session, self._config, table)
                except LakeError as error:
                    self._pinned[str(table)] = error
            result = self._pinned[str(table)]
        if isinstance(result, LakeError):
            raise LakeError(result.thing, result.reason, result.remedy)
        return result


def _pin(session: SparkSession, config: Config, table: ExternalTable) -> ExternalVersion:
    thing = f"external table {table}"
    if table.kind == "delta":
        _check_place(config, table, thing)
        name = f"delta.{quoted(table.place)}"
    else:
        name = ".".join(quoted(part) for part in table.place.split("."))
    detail = _detail(session, name, thing)
    if detail.format != "delta":
        raise LakeError(thing, f"it is no Delta table ({detail.format})", _CONVERT)
    path = table.place if table.kind == "delta" else _place(detail.path)
    version = _newest(config, path, thing)
    if version == NO_VERSION:
        raise LakeError(thing, "its log has no version", "see whether somebody is writing it, then refresh again")
    return ExternalVersion(path, detail.table_id, version)


def _check_place(config: Config, table: ExternalTable, thing: str) -> None:
    """Raise LakeError for a place that has no Delta table, before Spark is asked in its own words."""
    if _newest(config, table.place, thing) == NO_VERSION:
        raise LakeError(thing, "there is no Delta table in this place, or nobody may read it", _CONVERT)


def _newest(config: Config, path: str, thing: str) -> int:
    try:
        return newest_external(config, path)
    except OSError as error:
        raise LakeError(
            thing,
            f"its log can't be read ({error.strerror or type(error).__name__})",
            "give lakeproof the right to read it",
        ) from None


def _detail(session: SparkSession, name: str, thing: str) -> TableDetail:
    with reading(session) as attempt:
        detail = table_detail(session, name)
    if attempt.error is not None:
        raise LakeError(
            thing,
            f"it can't be read: {reason_of(attempt.error)}",
            "correct its name, or give lakeproof the right to read it",
        )
    return detail


def _place(location: str) -> str:
    """Return a location as Hadoop writes it (`file:/a%20b`) as a place that stores know."""
    return (
        unquote(location.removeprefix("file:")) if location.startswith("file:/") and "://" not in location else location
    )
