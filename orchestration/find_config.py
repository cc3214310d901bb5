"""Finds the configuration that the location is made from.

Reading it belongs to `lakeproof.config.load`; what is made from it, to `build`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from lakeproof.config.load import DEFAULT_NAME, VARIABLE

# The folder that workspace.yaml stands in.
ROOT = Path(__file__).resolve().parent.parent

HINT = f"set {VARIABLE} to a configuration file, or put {DEFAULT_NAME} into {ROOT}, then reload this location"


def configuration_path(environ: Mapping[str, str] = os.environ, root: Path = ROOT) -> Path | None:
    """The file that LAKEPROOF_CONFIG names, else `lakeproof.yaml` at the root, else None.

    A file that is named is given back also where it is missing: to load nothing would hide the mistake.
    """
    named = environ.get(VARIABLE, "")
    if named:
        return Path(named).expanduser().absolute()
    default = root / DEFAULT_NAME
    return default if default.is_file() else None
