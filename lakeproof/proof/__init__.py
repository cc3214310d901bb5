"""Source against lake at one position: the same exact forms on both sides, summed in buckets.

Making the snapshot, and the cycle that ends at its position, belongs to `lakeproof.commands.prove`.

    source_form.py  a row's text as SQL for PostgreSQL   source_side.py    reading the source
    lake_form.py    the same as Spark expressions        jvm_functions.py  functions of the JVM that make it cheaper
    compare.py      buckets and keys that differ         unsent.py         differences that unsent changes explain
    keys_to_repair.py  all keys that differ, for a repair
    history.py      a history against its checksum       result.py         the result
    record.py       the last result of each table        days.py           a day, and the changes to the next
"""
