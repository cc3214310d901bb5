"""The Dagster location: assets, jobs, sensors and schedules, as the configuration says; ARCHITECTURE.md has its files.

Nothing imports this package: assets and jobs don't know what starts them. Asset functions and job selections do not belong
here, nor does any work on a lake.
"""
