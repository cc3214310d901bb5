"""Reading the lake by Spark: tables at cuts and positions, changes and streams of them.

Reading without Spark does not belong here (`lakeproof.lake.read.arrow`).
"""
