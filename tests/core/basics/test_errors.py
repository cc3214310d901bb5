"""Errors: one line with thing, reason and remedy, and the exit status that says what to do."""

from __future__ import annotations

import pytest

from lakeproof import errors


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (errors.TransientError, 3),
        (errors.DefiniteError, 2),
        (errors.ConfigError, 2),
        (errors.SourceError, 2),
        (errors.GapError, 2),
        (errors.LakeError, 2),
        (errors.TableError, 2),
        (errors.InvariantError, 2),
    ],
)
def test_each_kind_has_its_exit_status(kind: type[errors.LakeproofError], status: int) -> None:
    """3 for what may succeed when tried again, 2 for what waits for a person."""
    assert kind("slot shop", "in use", "stop the other drain").exit_status == status


def test_an_error_is_one_line_of_thing_reason_and_remedy() -> None:
    """The form every message of the command line has."""
    assert (
        str(errors.SourceError("slot shop", "does not exist", "run bootstrap"))
        == "slot shop: does not exist; run bootstrap"
    )


@pytest.mark.parametrize("kind", [errors.TransientError, errors.InvariantError])
def test_neither_a_passing_nor_our_own_mistake_is_definite(kind: type[errors.LakeproofError]) -> None:
    """`except DefiniteError` catches exactly what a person must change."""
    assert not issubclass(kind, errors.DefiniteError)


@pytest.mark.parametrize(
    "kind", [errors.ConfigError, errors.SourceError, errors.GapError, errors.LakeError, errors.TableError]
)
def test_what_a_person_must_change_is_definite(kind: type[errors.LakeproofError]) -> None:
    """DefiniteError has the other half of the tree."""
    assert issubclass(kind, errors.DefiniteError)
    assert issubclass(kind, errors.LakeproofError)
