"""Previews of replaced views: what a view would be by another definition, staged in the lake where no reader looks.

Computing and applying a preview is in `lakeproof.views.replace`; FORMAT.md has the document's fields.

A preview is a folder: the staged rows, and a document that is put when they are complete. Its name begins with its time. A
folder without a document is a preview that was killed. Both are removed after `PREVIEW_KEPT_S`, by maintenance.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone

from lakeproof.errors import LakeError
from lakeproof.field_types import Count, CycleField, Sha256
from lakeproof.lake.records.views.cuts import ExternalVersion, ViewVersion
from lakeproof.storage.document import Document
from lakeproof.storage.paths import LakePaths
from lakeproof.storage.store import Store
from lakeproof.storage.times import now_text

PREVIEW_KEPT_S = 7 * 86_400.0
_TIME = "%Y%m%dT%H%M%S%f"


@dataclass(frozen=True, slots=True)
class ViewPreview(Document):
    """What applying a definition to a view would do; `sources`, `views` and `external` as in the view's cut.

    `cut` and `delta_version`: those of the view that it was made for. `inserted` and `retracted` are rows that differ, by
    the columns that stay; if columns change, all `rewritten` rows are written anew. `added` and `dropped`: column → type;
    `retyped`: column → `old → new`. `staged`: the staged rows to insert, and to delete.
    """

    FORMAT = "lakeproof.viewpreview/1"
    REMEDY = "make a new preview with `lakeproof replace`"

    id: str
    view: str
    definition_sha256: Sha256
    cut: CycleField
    delta_version: Count
    sources: Mapping[str, CycleField]
    inserted: Count
    retracted: Count
    rewritten: Count | None
    added: Mapping[str, str]
    dropped: Mapping[str, str]
    retyped: Mapping[str, str]
    staged: tuple[Count, Count]
    engine: Mapping[str, str]
    views: Mapping[str, ViewVersion] = field(default_factory=dict)
    external: Mapping[str, ExternalVersion] = field(default_factory=dict)
    created_at: str = field(default_factory=now_text)

    @property
    def changes_columns(self) -> bool:
        """True if the view's columns would be others."""
        return bool(self.added or self.dropped or self.retyped)


def new_preview_id() -> str:
    """Return the name of a preview that begins now."""
    return f"{datetime.now(timezone.utc).strftime(_TIME)}-{uuid.uuid4().hex[:6]}"


def put_preview(store: Store, preview: ViewPreview) -> None:
    """Write a preview's document: its staged rows are complete."""
    store.put_if_absent(LakePaths.view_preview_document(preview.view, preview.id), preview.to_bytes())


def newest_preview(store: Store, view: str) -> ViewPreview | None:
    """Return the view's newest preview that is complete; raises LakeError if its document is damaged."""
    for name in sorted(store.folders(LakePaths.view_previews(view)), reverse=True):
        preview = ViewPreview.read(store, LakePaths.view_preview_document(view, name))
        if preview is not None:
            return preview
    return None


def remove_previews(store: Store, view: str) -> None:
    """Remove a view's previews."""
    for name in store.folders(LakePaths.view_previews(view)):
        store.delete_all(LakePaths.view_preview(view, name))


def old_previews(store: Store, now: datetime) -> Iterator[tuple[str, int, int]]:
    """Yield each preview of any view that began `PREVIEW_KEPT_S` ago: its folder, how many files, and their bytes."""
    oldest = (now - timedelta(seconds=PREVIEW_KEPT_S)).strftime(_TIME)
    for view in store.folders(LakePaths.all_view_previews()):
        for name in store.folders(LakePaths.view_previews(view)):
            if not name[:8].isdecimal():
                raise LakeError(store.url(LakePaths.view_preview(view, name)), "it is no preview", "move it away")
            if name < oldest:
                folder = LakePaths.view_preview(view, name)
                files = list(store.entries(folder))
                yield folder, len(files), sum(file.bytes for file in files)
