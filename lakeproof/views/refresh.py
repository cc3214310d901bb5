"""One view brought up to its sources' cuts: from what has changed if that is exact, else as a whole; one commit.

The definition and its checks belong to `definition`, choosing between this and computing from changes to
`incremental.strategies`, choosing views to `lakeproof.commands.refresh`.

    desired   = the SQL over the current tables, each at its source's cut
    persisted = the view's Delta table as it is, by any writer
    commit    = desired - persisted, as multisets by the digest of exact forms

Invariant self-correcting: after a refresh as a whole the view is its query's answer, whatever it was before; one from
changes begins only at a table that is as the view's cut says, by its version. Rows are identified by
(`_lp_key`, `_lp_dup`), the digest and a number; if those are damaged (a key that is not its row's digest, one pair twice)
single rows can't be named, and the whole table is written anew in that one commit.

Idempotence: commits of a killed refresh are first removed from the view's log (`cycle`); other writers' commits are simply
part of persisted. The Delta commit carries the refresh's number, which is greater than the newest cut's and than any in the
log. If nothing differs there is no Delta commit, and the cut names the existing version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from lakeproof.config.model import ViewConfig
from lakeproof.errors import ConfigError
from lakeproof.hidden_columns import DUP, KEY
from lakeproof.lake.delta.apply import CommitRequest, apply_change, with_files
from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec, check_writable
from lakeproof.lake.records.views.cuts import ViewCut, ViewsLock, engine_versions, newest_view_cut
from lakeproof.lake.records.views.definitions import ViewDefinition, put_definition
from lakeproof.lake.rows.change import AllRows, NetChange, Removed, Unsupported
from lakeproof.lake.spark.jvm import counting, note_scans
from lakeproof.names import CycleNumber
from lakeproof.storage.store import Store
from lakeproof.views.cycle import app_id, begin_view_cycle, end_view_cycle
from lakeproof.views.definition import query_errors
from lakeproof.views.difference import ViewTarget, differing, with_dup
from lakeproof.views.incremental.correction import ViewCorrection
from lakeproof.views.incremental.strategies import partial_correction
from lakeproof.views.read_at import ViewInputs


def refresh_view(
    session: SparkSession,
    store: Store,
    view: ViewConfig,
    inputs: ViewInputs,
    lock: ViewsLock,
) -> ViewCut:
    """Commit the view's correction and write its cut.

    `session` is the caller's own (`spark.newSession()`), and the inputs' frames belong to it. `lock` is that of
    `one_refresh`. Raises ConfigError for a definition that can't be computed or kept, TransientError if another process
    refreshes, too.
    """
    definition, newest = ViewDefinition.of(view), newest_view_cut(store, view.name)
    sha256 = definition.sha256
    cycle = begin_view_cycle(store, view.name, newest, lock)
    target = ViewTarget(session, view, cycle.path, cycle.before, cycle.number, cycle.durable, inputs.replaces)
    staged = inputs.staged if inputs.staged is not None and inputs.staged.version == cycle.before else None
    with counting() as scanned:
        partial, reason = partial_correction(target, inputs, newest, sha256) if staged is None else (None, None)
        if staged is not None:
            version, done = _commit_numbered(target, inputs, staged.correction)
        elif partial is not None:
            with partial.kept, query_errors(session, view):
                version, done = _commit_numbered(target, inputs, partial.correction)
        else:
            version, done = _as_a_whole(target, inputs)
    put_definition(store, definition)
    whole = newest if partial is not None else None
    return end_view_cycle(
        cycle,
        lambda created_at: ViewCut(
            number=cycle.number,
            view=view.name,
            delta_version=version,
            definition_sha256=sha256,
            replaced_sha256=None if inputs.takes_back else _replaced(newest, sha256),
            sources=inputs.cuts,
            inserted=done.inserted,
            retracted=done.retracted,
            created_at=created_at,
            refresh=inputs.refresh,
            strategy="staged" if staged is not None else "full" if partial is None else partial.strategy,
            reason=reason,
            changed_rows=None if partial is None else partial.changed_rows,
            rows_read=scanned.rows,
            whole_at=whole.whole_at if whole is not None else created_at if staged is None else staged.computed_at,
            engine=engine_versions() if whole is None else whole.engine,
            views=inputs.point.views,
            external=inputs.point.external,
            row_bytes=inputs.point.row_bytes(view),
        ),
    )


def _replaced(newest: ViewCut | None, sha256: str) -> str | None:
    """Return the definition that was applied before this one."""
    if newest is None or newest.definition_sha256 != sha256:
        return None if newest is None else newest.definition_sha256
    return newest.replaced_sha256


def _commit_numbered(target: ViewTarget, inputs: ViewInputs, correction: ViewCorrection) -> tuple[int, ViewCorrection]:
    """Commit a correction whose insertions are without `_lp_dup`; return the version after it, and the correction."""
    if correction.insertions is not None:
        correction = replace(correction, insertions=with_dup(correction.insertions, target.number))
    return _commit(target, correction, inputs.cuts), correction


def _as_a_whole(target: ViewTarget, inputs: ViewInputs) -> tuple[int, ViewCorrection]:
    """Commit what the table lacks of the query's rows; return as above."""
    with differing(target, inputs.tables, may_place=True) as (desired, difference):
        with query_errors(target.session, target.view):
            version = _commit(target, difference, inputs.cuts)
        if difference.correction is not None:
            note_scans(difference.correction.net)
        note_scans(desired)
    return version, difference


def _commit(target: ViewTarget, correction: ViewCorrection, sources: Mapping[str, CycleNumber]) -> int:
    """Return the table's version after the correction."""
    placed = correction.placed
    nothing = correction.retractions is None and correction.insertions is None and not correction.truncate
    if nothing and placed is None and target.before != NO_VERSION:
        return target.before
    name = target.view.name
    metadata = json.dumps({"view": name, "number": target.number, "sources": dict(sources)}, sort_keys=True)
    removed: Removed[DataFrame] | AllRows | None = None
    if correction.truncate:
        removed = AllRows(new_columns=correction.new_columns)
    elif correction.retractions is not None:
        removed = Removed((KEY, DUP), correction.retractions)
    change = NetChange(removed, correction.insertions) if placed is None else NetChange(images=placed.images)
    info = CommitInfo(app_id(name), int(target.number), metadata)
    request = CommitRequest(target.path, change, info, correction.retracted, TableSpec(), target.before)
    try:
        if placed is not None:
            check_writable(placed.before)
            return with_files(request, placed.before, placed.places).commit().version
        return apply_change(target.session, request).version
    except Unsupported as error:
        raise ConfigError(f"view {name}", str(error), "CAST it in the query") from None
