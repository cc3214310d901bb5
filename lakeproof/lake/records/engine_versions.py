"""The versions of what computes views: the rows of another version are no basis, since it may compute differently.

`lakeproof.views.incremental.since_cut` and `lakeproof.views.drift` decide by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

import lakeproof

_PACKAGES = {"spark": "pyspark", "delta": "delta-spark"}


@cache
def engine_versions() -> Mapping[str, str]:
    """Return the versions of Spark, Delta and lakeproof in this process; without those that are not installed."""
    versions = {"lakeproof": lakeproof.__version__}
    for name, package in _PACKAGES.items():
        try:
            versions[name] = version(package)
        except PackageNotFoundError:
            continue
    return versions


def other_versions(then: Mapping[str, str]) -> str | None:
    """Return which of them were others, None if none was: `spark 4.1.0, now 4.2.0`."""
    now = engine_versions()
    changed = [
        f"{name} {then.get(name)}, now {number}" for name, number in sorted(now.items()) if then.get(name) != number
    ]
    return ", ".join(changed) or None
