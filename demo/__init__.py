"""The demonstration: an embedded PostgreSQL with a live workload, taken through the whole pipeline.

Nothing that a production deployment needs belongs here.
"""
