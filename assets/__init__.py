"""Dagster assets and checks, one module per family: they read resources, call `wal2delta.pipeline` and report.

No logic of the pipeline belongs here, and no job, sensor or schedule.
"""
