"""What of the landing a cycle takes: where it ends for all tables, its files of a table, and the order of their rows.

The landing's own format does not belong here (`lakeproof.landing`).
"""
