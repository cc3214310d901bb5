"""COPY from a server under a snapshot: its statements, its blocks of rows, and their text.

Which tables are copied, and into what, does not belong here (`lakeproof.snapshot`).
"""
