"""lakeproof for Dagster, by the name under which it is installed: `type: lakeproof_dagster.SourceComponent`.

In the repository the code stands in the rooms `assets`, `jobs`, `resources` and `orchestration`; a wheel has them in this
package (`scripts/build_wheel.py`), so that they take no names of other projects.
"""

from orchestration.component import SourceComponent

__all__ = ["SourceComponent"]
