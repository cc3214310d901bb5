"""The configuration: `load` reads `lakeproof.yaml`, `Config` is what it says.

What the parts do with it belongs to the parts.
"""

from lakeproof.config.load import load
from lakeproof.config.mistakes import ConfigFileError, Mistake
from lakeproof.config.model import Config, SourceConfig, TableConfig, ViewConfig

__all__ = ["Config", "ConfigFileError", "Mistake", "SourceConfig", "TableConfig", "ViewConfig", "load"]
