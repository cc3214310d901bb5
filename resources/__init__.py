"""Dagster resources: the configuration file and a Spark session, handed to assets as engine objects.

No logic belongs here, and nothing that an import or a location's loading would connect to.
"""

from resources.lake_spark import LakeSpark
from resources.settings import Settings, SlotLook

__all__ = ["LakeSpark", "Settings", "SlotLook"]
