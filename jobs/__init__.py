"""Dagster jobs: named selections of assets and checks, and in `by_hand` the jobs that only a person launches.

Asset implementations do not belong here (`assets`), nor schedules and sensors (`orchestration`).
"""
