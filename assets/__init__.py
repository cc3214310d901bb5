"""Dagster assets and checks, one module per family: they read resources, call `lakeproof.pipeline` and report.

No logic of the pipeline belongs here, and no job, sensor or schedule.
"""
