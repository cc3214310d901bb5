"""A batch's images in landed files and in new files at once: how the apply contract is kept by links.

The model and its batches are in `apply_model.py`; which rows a cycle links is `lakeproof.lake.cycle.table`'s.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from lakeproof.lake.delta.apply import CommitRequest
from lakeproof.lake.delta.committer import Applied
from lakeproof.lake.delta.files.data_files import data_file
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, linked_name, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION, commit_name, newest_version, read_actions
from lakeproof.lake.rows.change import FIRST, AllRows, NetChange, Removed
from lakeproof.lake.rows.columns import col
from lakeproof.storage.folder import Folder
from tests.support.lake.linkable_rows import in_one_store, land


@dataclass(frozen=True, slots=True)
class LandedBatch:
    """The images of one batch: `links` have some of them, beside rows that are not the table's; `rows` and `images` others.

    A cycle that is run again has the same files, so one batch has one of these.
    """

    links: Sequence[Link]
    rows: Sequence[pa.Table]
    images: pa.Table | None

    @property
    def all_rows(self) -> list[pa.Table]:
        """The rows that are in no landed file."""
        return [*self.rows, *([] if self.images is None else [self.images])]


def land_batch(rng: random.Random, folder: Path, images: pa.Table, others: pa.Table) -> LandedBatch:
    """Land most images in up to three files, among rows of `others`; leave some to this process, in two parts."""
    count, ways = images.num_rows, np.arange(images.num_rows)
    # At least one row, if there is one, comes in a landed file.
    ways = np.array([0 if place == 0 else rng.choice([0, 0, 0, 1, 2, 3, 4]) for place in range(count)], np.int64)
    links = [
        _landed(rng, folder, images.filter(pa.array(ways == way)), others) for way in range(3) if (ways == way).any()
    ]
    rows = [images.filter(pa.array(ways == 3))]
    by_spark = images.filter(pa.array(ways == 4))
    return LandedBatch(links, rows, by_spark if by_spark.num_rows else None)


def _landed(rng: random.Random, folder: Path, rows: pa.Table, others: pa.Table) -> Link:
    """Write one file, in row groups of a few rows; those of `others` lie anywhere between, and are left out."""
    chosen = others.slice(0, rng.randrange(others.num_rows + 1)) if rng.random() < 0.5 else others.slice(0, 0)
    order = np.array(rng.sample(range(rows.num_rows + chosen.num_rows), rows.num_rows + chosen.num_rows), np.int64)
    both = pa.concat_tables([rows, chosen]).take(pa.array(order))
    name = f"{rng.randrange(10**6):06d}-{rng.randbytes(6).hex()}.parquet"
    landed = land(folder, name, both, rng.choice([2, 7, 1 << 20]))
    left_out = np.flatnonzero(order >= rows.num_rows).astype(np.int64)
    return Link(landed, left_out if len(left_out) else None)


def commit_by_links(request: CommitRequest, batch: LandedBatch, columns: dict[str, str]) -> Applied:
    """Make the commit that `request` asks for, with the batch in place of its images.

    Raises `Unsupported` before any commit, without a file more in the table's folder. The log has each file by the name
    that its link has.
    """
    expected = newest_version(request.path) if request.expected_version is None else request.expected_version
    link_request = LinkRequest(
        request.path,
        request.info,
        batch.links,
        {name: name for name in columns},
        expected,
        removed=_removed(request.change),
        create=NewTable(columns, request.create) if request.create is not None and expected == NO_VERSION else None,
        rows=batch.all_rows,
    )
    in_one_store(Path(request.path), [link.landed for link in batch.links])
    applied = prepare_links(link_request).commit()
    if batch.links:
        check_linked(request, batch, applied.version)
    return applied


def _removed(change: NetChange[DataFrame]) -> Removed[pa.Table] | AllRows | None:
    """The rows that a change removes, by the same keys."""
    if not isinstance(change.removed, Removed):
        return change.removed
    key, keys = change.removed.key, change.removed.rows
    rows = keys.select(*(col(k) for k in key), *([FIRST] if FIRST in keys.columns else [])).distinct().toArrow()
    if not change.removed.null_safe:
        for name in key:
            rows = rows.filter(rows.column(name).is_valid())
    return Removed(key, rows, change.removed.null_safe, change.removed.presupposed)


def check_linked(request: CommitRequest, batch: LandedBatch, version: int) -> None:
    """The commit has each landed file, which is still the same file, and other files for other rows alone."""
    names = {linked_name(request.info, link.landed): link.landed.url for link in batch.links}
    actions = read_actions(Folder.at(request.path), commit_name(version))
    paths = [data_file(action).path for kind, action in actions if kind == "add"]
    for name, place in names.items():
        assert paths.count(name) == 1, f"{name} is not in {paths}"
        assert (Path(request.path) / name).samefile(place), name
    if not isinstance(request.change.removed, Removed):
        others = [path for path in paths if path not in names]
        written = [path for path in others if path.startswith("rows-")]
        assert bool(written) is any(rows.num_rows for rows in batch.all_rows), others
        assert others == written
