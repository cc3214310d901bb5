"""Base 85, in which a log has deletion vectors and the names of their files, and a damaged vector in the log itself."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from pyroaring import BitMap64

from lakeproof.errors import UnreadableRowsError
from lakeproof.lake.delta.files.data_files import MAGIC, data_file, deleted_rows, in_base_85, of_base_85
from lakeproof.storage.folder import Folder

# The example of Z85's own specification.
OCTETS, LETTERS = bytes.fromhex("864fd26fb559f75b"), "HelloWorld"


def test_the_letters_are_those_of_z85() -> None:
    """Every octet comes back, in whatever place of its group."""
    assert (in_base_85(OCTETS), of_base_85(LETTERS)) == (LETTERS, OCTETS)
    every = bytes(range(256)) + bytes(reversed(range(256)))
    assert of_base_85(in_base_85(every)) == every


@pytest.mark.parametrize("letters", ["Hello;orld", "Hello~orld", "Hello_orld", "Hello orld", "Helloäorld"])
def test_a_letter_that_z85_has_not_is_refused(letters: str) -> None:
    """Python's own Base85 has the first three."""
    with pytest.raises(ValueError, match=r"base85|ASCII"):
        of_base_85(letters)


@pytest.mark.parametrize("letters", [None, "#####", "0000;", "00000"])
def test_a_damaged_vector_in_the_log_is_an_error_of_ours(tmp_path: Path, letters: str | None) -> None:
    """Five letters of the highest number are more than four octets can have; a whole vector is read."""
    whole = struct.pack("<i", MAGIC) + BitMap64([1, 7]).serialize()
    text = in_base_85(whole.ljust(-(-len(whole) // 4) * 4, b"\0"))
    vector = {"storageType": "i", "pathOrInlineDv": letters or text, "sizeInBytes": len(whole), "cardinality": 2}
    file = data_file({"path": "a.parquet", "size": 1, "deletionVector": vector})
    assert file.deleted is not None
    assert file.vector is None
    if letters is None:
        assert deleted_rows(Folder.at(str(tmp_path)), file.deleted).tolist() == [1, 7]
    else:
        with pytest.raises(UnreadableRowsError, match="a deletion vector is damaged"):
            deleted_rows(Folder.at(str(tmp_path)), file.deleted)
