"""`Lsn`: PostgreSQL's text, its order and its limits."""

from __future__ import annotations

import pytest

from lakeproof.lsn import Lsn

LAST = (1 << 64) - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0/0", 0),
        ("0/16B3748", 0x16B3748),
        ("1/0", 1 << 32),
        ("FFFFFFFF/FFFFFFFF", LAST),
        ("16/b374d848", 0x16B374D848),
    ],
)
def test_text_is_read_as_postgresql_writes_it(text: str, value: int) -> None:
    """Both halves are hexadecimal, in either case."""
    assert Lsn.parse(text).value == value
    assert int(Lsn.parse(text)) == value


@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF, 1 << 32, 0x16B374D848, LAST])
def test_text_and_value_are_inverse(value: int) -> None:
    """`parse` reads what `str` writes."""
    assert Lsn.parse(str(Lsn(value))) == Lsn(value)


def test_text_has_no_leading_zeros() -> None:
    """PostgreSQL up to 18 writes none in either half."""
    assert str(Lsn(0x1_0000_000A)) == "1/A"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/",
        "0",
        "0/",
        "/0",
        "0/0/0",
        "0/0 ",
        " 0/0",
        "0/0\n",
        "-1/0",
        "+1/0",
        "0x1/0",
        "G/0",
        "100000000/0",
        "0/100000000",
        "1_0/0",
        "\u0660/0",
        "0\\0",
        "0,0",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    """A text that is nearly an LSN is not one."""
    with pytest.raises(ValueError, match="not an LSN"):
        Lsn.parse(text)


def test_a_refusal_quotes_at_most_40_characters() -> None:
    """A wrong argument of any size gives a short message."""
    with pytest.raises(ValueError, match="not an LSN") as caught:
        Lsn.parse("x" * 10_000)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("value", [-1, LAST + 1])
def test_a_value_outside_64_bits_is_refused(value: int) -> None:
    """An LSN below zero or beyond 2**64 - 1 is refused."""
    with pytest.raises(ValueError, match="between 0 and"):
        Lsn(value)


def test_order_is_by_address_not_by_text() -> None:
    """`9/0` comes before `10/0`, which as texts it does not."""
    assert Lsn.parse("9/0") < Lsn.parse("10/0")
    assert max(Lsn(3), Lsn(20), Lsn(1)) == Lsn(20)


def test_a_difference_is_in_bytes_and_signed() -> None:
    """The distance to a later position is negative."""
    assert Lsn(10) - Lsn(4) == 6
    assert Lsn(4) - Lsn(10) == -6


@pytest.mark.parametrize("other", [5, "0/5", None])
def test_an_lsn_is_no_bare_number_or_text(other: object) -> None:
    """Mixing them up shows at once."""
    assert Lsn(5) != other
    with pytest.raises(TypeError):
        _ = Lsn(5) < other  # type: ignore[operator]  # that is the claim


def test_zero_is_no_position() -> None:
    """`Lsn.ZERO` is PostgreSQL's InvalidXLogRecPtr."""
    assert str(Lsn.ZERO) == "0/0"
