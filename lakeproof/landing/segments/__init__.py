"""One segment of the landing: its files of rows, their columns, order and sums, and the manifest that names them.

The chain of segments does not belong here (`lakeproof.landing.chain`).

    manifest.py       one element of the chain
    segment.py        writes a segment
    row_file.py       writes a file of its rows
    task_threads.py   the threads that do that
    file_columns.py   the columns of landed files
    reader.py         finds and verifies files
    row_order.py      the ordinals of rows
    row_sums.py       the sum of a file's rows
    row_tags.py       the tags in their hashes
    decoded_size.py   what a file's rows take in memory
"""
