"""The configuration: `load` reads `wal2delta.yaml`, `Config` is what it says.

What the parts do with it belongs to the parts.
"""

from wal2delta.config.load import load
from wal2delta.config.mistakes import ConfigFileError, Mistake
from wal2delta.config.model import Config, SourceConfig, TableConfig, ViewConfig

__all__ = ["Config", "ConfigFileError", "Mistake", "SourceConfig", "TableConfig", "ViewConfig", "load"]
