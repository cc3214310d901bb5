"""A landed file gets its second name in a process of its own, to be killed: `python -m tests.support.spark.place_process`.

Its arguments are the file, the table's folder and the name there. The failpoint comes from the environment. No JVM is
started.
"""

from __future__ import annotations

import sys
from pathlib import Path

from lakeproof.lake.delta.files.links import place
from lakeproof.storage.folder import Folder
from tests.support.lake.linkable_rows import in_one_store, landed


def main(file: Path, folder: Path, name: str) -> None:
    """Place it."""
    in_one_store(folder, [landed(file)])
    place(landed(file), Folder.at(str(folder)), name, None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
