"""Dagster resources: the configuration file and a Spark session, passed to assets as engine objects.

Pipeline logic does not belong here, and nothing that connects to a server when it is imported or when the location loads.

    settings.py    the configuration, and cheap reads of slot and lake for sensors and metadata
    lake_spark.py  the Spark session of a run, made by run_session.py
    compute/       where a run's Spark work is done
    messages.py    the ways by which people are notified
    fixed.py       the resources of a location, without configuration
    run_lock.py    the lock by which others see that a run's process is alive
"""

from resources.compute import Compute
from resources.lake_spark import LakeSpark
from resources.settings import LastProofs, Settings

__all__ = ["Compute", "LakeSpark", "LastProofs", "Settings"]
