"""Scala's sequences over py4j: what is asked of the JVM for their items."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeproof.lake.spark.jvm import items


@dataclass
class Seq:
    """A sequence as py4j has it, without an iterator; `asked` has the numbers that were asked for."""

    values: list[str]
    asked: list[int] = field(default_factory=list)

    def size(self) -> int:
        """The number of items."""
        return len(self.values)

    def apply(self, number: int) -> str:
        """An item."""
        self.asked.append(number)
        return self.values[number]


def test_each_item_is_asked_for_and_none_beyond_the_last() -> None:
    """An exception in the JVM takes PySpark up to 50 ms, for each node of a view's plan several times."""
    for values in ([], ["a"], ["a", "b", "c"]):
        seq = Seq(list(values))
        assert items(seq) == values
        assert seq.asked == list(range(len(values)))
