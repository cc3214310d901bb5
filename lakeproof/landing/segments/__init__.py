"""One segment of the landing: its files of rows, their columns, order and sums, and the manifest that names them.

The chain of segments does not belong here (`lakeproof.landing.chain`).
"""
