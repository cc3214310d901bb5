"""Dagster resources: the configuration file and a Spark session, handed to assets as engine objects.

No logic belongs here, and nothing that an import or a location's loading would connect to.
"""

from resources.lake_spark import LakeSpark
from resources.settings import LastProofs, Settings, SlotLook

__all__ = ["LakeSpark", "LastProofs", "Settings", "SlotLook"]
