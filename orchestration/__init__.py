"""The Dagster location: definitions, sensors and schedules, assembled from the configuration.

Nobody imports this package; assets and jobs don't know who starts them.
"""
