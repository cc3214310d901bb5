"""Source against lake at one position: the same exact forms on both sides, summed in buckets.

Making the snapshot, and the cycle that ends at its position, belongs to `lakeproof.commands.prove`.

    run.py             one proof, from its snapshot to its record
    tables.py          tables compared, whole
    changed.py         tables compared, by what changed
    changed_keys.py    the keys that were touched
    source/            the source's side
    lake/              the lake's side, and the lake by itself
    compare.py         buckets and keys that differ
    keys_to_repair.py  all keys that differ, for a repair
    repair.py          these read again
    record.py          the last result of each table, where a proof of changes begins
    result.py          the result
    days.py            a day, and the changes to the next
"""

__all__ = ["compare", "days", "keys_to_repair", "lake", "record", "repair", "result", "run", "source"]
