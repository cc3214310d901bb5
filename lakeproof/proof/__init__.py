"""Source against lake at one position: the same exact forms on both sides, summed in buckets.

Making the snapshot, and the cycle that ends at its position, belongs to `lakeproof.commands.prove`.

    source_form.py     a row's text as SQL for PostgreSQL   source_side.py        reading the source
    lake_in_arrow.py   the lake's side in this process      lake_form.py          the same as Spark expressions
    lake_side.py       which of the two, and why            jvm_functions.py      functions that make Spark's cheaper
    compare.py         buckets and keys that differ         unsent.py             differences that unsent changes explain
    history.py         a history against its checksum       keys_to_repair.py     all keys that differ, for a repair
    history_in_arrow.py  reading history in this process    history_by_spark.py   the same by Spark
    record.py          the last result of each table        result.py             the result
    days.py            a day, and the changes to the next
"""

__all__ = ["compare", "days", "keys_to_repair", "lake", "record", "repair", "result", "run", "source"]
