"""The table of pgoutput's tags: complete, and the sets derived from it."""

from __future__ import annotations

from typing import get_args

from lakeproof.pgoutput import tags
from lakeproof.pgoutput.decoder import _READERS
from lakeproof.pgoutput.messages import Commit, Message, StreamAbort, TwoPhase


def test_every_class_of_messages_has_one_tag() -> None:
    """No two share one; those about transactions in two phases are one class, with five."""
    assert {tag.message for tag in tags.TAGS} == set(get_args(Message))
    assert len({tag.octet for tag in tags.TAGS}) == len(tags.TAGS) == len(get_args(Message)) + 4
    assert b"".join(tag.octet for tag in tags.TAGS if tag.message is TwoPhase) == b"bPKrp"


def test_every_tag_is_one_byte_and_is_read() -> None:
    """The decoder reads every message of the table, and nothing else."""
    assert {len(tag.octet) for tag in tags.TAGS} == {1}
    assert set(_READERS) == {tag.octet for tag in tags.TAGS}


def test_the_derived_sets() -> None:
    """The sets are those in the protocol's documentation."""
    assert tags.ROW_CHANGES == b"IUD"
    assert tags.CHANGES == b"IUDT"
    assert tags.IN_CHUNK == b"ORYIUDTM"
    assert tags.WITH_XID_IN_CHUNK == b"RYIUDTM"
    assert tags.TRANSACTION_ENDS == b"BC"
    assert set(tags.SPECIAL) == set(b"SEcAbPKrp")
    assert tags.tags_of(Commit, StreamAbort) == b"CA"
