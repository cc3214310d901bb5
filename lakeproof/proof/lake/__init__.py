"""The lake's side of a proof: current's buckets and rows, by Arrow and by Spark, and the lake compared with itself.

The comparison with the source does not belong here (`lakeproof.proof.compare`).

    in_arrow.py          the lake's side in this process
    form.py              the same as Spark expressions
    side.py              which of the two, and why
    jvm_functions.py     functions that make Spark's cheaper
    history.py           a history against its checksum
    history_in_arrow.py  reading history in this process
    history_by_spark.py  the same by Spark
    by_itself.py         histories and views of a proof
"""
