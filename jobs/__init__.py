"""Named selections of assets and checks, each with its executor, tags and run configuration.

Asset implementations belong to `assets`; when a job runs belongs to `orchestration`.
"""
