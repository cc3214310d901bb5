"""A commit by links in a process of its own, to be killed: `python -m tests.support.spark.link_process TABLE FILE`.

The failpoint comes from the environment.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeproof.lake.delta.committer import CommitInfo
from lakeproof.lake.delta.link_commit import Link, LinkRequest, NewTable, prepare_links
from lakeproof.lake.delta.log.commits import NO_VERSION
from lakeproof.lake.delta.log.protocol import TableSpec
from tests.support.lake.linkable_rows import SPARK_TYPES, in_one_store, landed


def link_request(table: Path, file: Path) -> LinkRequest:
    """The first commit of a table, of one file, in the store of the folder that the table is in."""
    in_one_store(table, [landed(file)])
    new = NewTable(SPARK_TYPES, TableSpec())
    info = CommitInfo("lakeproof/shop/1/current/app.t", 1, "{}")
    return LinkRequest(
        str(table), info, [Link(landed(file))], {name: name for name in SPARK_TYPES}, NO_VERSION, create=new
    )


def main(table: Path, file: Path) -> None:
    """Link it."""
    prepare_links(link_request(table, file)).commit()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
