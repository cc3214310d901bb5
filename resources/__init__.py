"""Dagster resources: the configuration, and the place of a run's Spark work, passed to assets as engine objects.

Pipeline logic does not belong here, and nothing that connects to a server when it is imported or when the location loads.

    settings.py    the configuration, cheap reads of slot and lake for sensors and metadata, and the lock by which others
                   see that a run's process is alive
    compute.py     runs a command, with the run's session, or elsewhere
    run_session.py the run's Spark session             elsewhere.py   a command at another place, through Dagster Pipes
    messages.py    the ways by which people are notified
    fixed.py       the resources of a location, without configuration
"""

from resources.compute import Compute
from resources.settings import Settings

__all__ = ["Compute", "Settings"]
