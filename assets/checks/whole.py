"""The check that the lake lacks nothing of a source: no published table, no proof, no day, no view's own rows.

Finding out what is lacking does not belong here (`lakeproof.state.shortfall`), nor do held tables, which have events and
alerts of their own.
"""

import dagster as dg

from assets.support.keys import slot_key
from lakeproof.errors import LakeproofError
from lakeproof.state.shortfall import Shortfall
from resources import Settings

CHECK = "lake_is_whole"
_DESCRIPTION = (
    "Every published table is in the lake, or on its way; every table was compared with the source, and was equal; no day "
    "that `daily` asks for is missing; nobody but lakeproof wrote a view. WARN: a table was never compared, or a day is "
    "missing. The same is in `lakeproof status`."
)


def whole_spec(source: str) -> dg.AssetCheckSpec:
    """Return the check's place: at the slot's asset, whose job looks at a source every quarter of an hour."""
    return dg.AssetCheckSpec(CHECK, asset=slot_key(source), description=_DESCRIPTION)


def whole_result(settings: Settings, source: str) -> dg.AssetCheckResult:
    """Return the check's result; a lake that can't be read fails it, and no server is asked."""
    try:
        lacking = settings.shortfall(source)
    except LakeproofError as error:
        return _result(source, passed=False, is_error=True, text=f"the lake can't be read: {error}")
    text = "\n".join(lacking.sentences(source))
    is_error = bool(lacking.waited_for or lacking.differing or lacking.views)
    return _result(source, passed=not lacking, is_error=is_error, text=text, lacking=lacking)


def _result(
    source: str, *, passed: bool, is_error: bool, text: str, lacking: Shortfall | None = None
) -> dg.AssetCheckResult:
    numbers = {}
    if lacking is not None:
        numbers = {
            "absent_tables": len(lacking.waited_for),
            "unproved_tables": len(lacking.unproved),
            "differing_tables": len(lacking.differing),
            "missing_days": sum(map(len, lacking.days.values())),
            "overwritten_views": len(lacking.views),
        }
    return dg.AssetCheckResult(
        asset_key=slot_key(source),
        check_name=CHECK,
        passed=passed,
        severity=dg.AssetCheckSeverity.ERROR if is_error else dg.AssetCheckSeverity.WARN,
        description=text or None,
        metadata=numbers,
    )
