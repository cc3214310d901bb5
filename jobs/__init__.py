"""Dagster jobs: named selections of assets and checks, each with its executor, tags and description.

Asset implementations do not belong here (`assets`), nor schedules and sensors (`orchestration`).

    names.py   job names and run tags      source.py  the jobs that are selections of assets
    by_hand/   jobs that only a person launches: repair, rebuild, recover, teardown, pause, resume
"""
