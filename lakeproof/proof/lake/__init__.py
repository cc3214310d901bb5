"""The lake's side of a proof: current's buckets and rows, by Arrow and by Spark, and the lake compared with itself.

The comparison with the source does not belong here (`lakeproof.proof.compare`).
"""
