"""What of the landing a cycle takes: where it ends for all tables, its files of a table, and the order of their rows.

The landing's own format does not belong here (`lakeproof.landing`).

    end.py      how far the landing can be read beyond a cut, without a cycle
    order.py    the place of a cycle's rows in the order of all rows of a table's history
    waiting.py  what has landed since the newest cut, and when that is worth a cycle
"""
