"""Finds the configuration file that the location is built from.

Reading the file does not belong here; `lakeproof.config.load` does that.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lakeproof.config.load import DEFAULT_NAME, VARIABLE

# The folder of workspace.yaml.
ROOT = Path(__file__).resolve().parent.parent

HINT = f"set {VARIABLE} to a configuration file, or put {DEFAULT_NAME} into {ROOT}, then reload this location"


def configuration_path(environ: Mapping[str, str] = os.environ, root: Path = ROOT) -> Path | None:
    """Return the file that LAKEPROOF_CONFIG names, else `lakeproof.yaml` at the root, else None.

    A file that LAKEPROOF_CONFIG names is returned even if it is missing: loading nothing would hide the mistake.
    """
    named = environ.get(VARIABLE, "")
    if named:
        return Path(named).expanduser().absolute()
    default = root / DEFAULT_NAME
    return default if default.is_file() else None
