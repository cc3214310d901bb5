"""A part of the changes from cut to cut: cuts of one table or view whose rows have the same two shapes.

Computing the changes belongs to `changes` and `view_changes`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import types as T

from lakeproof.names import CycleNumber


@dataclass(frozen=True, slots=True)
class ChangesPart:
    """The changes of the cuts `first` to `last`: the rows' columns `before` and `after`, and the rows.

    The two shapes differ in the part of a cut that changes the columns, which has no other cut; elsewhere they are equal.
    """

    first: CycleNumber
    last: CycleNumber
    before: T.StructType
    after: T.StructType
    rows: DataFrame
