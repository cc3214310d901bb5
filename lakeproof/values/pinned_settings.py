"""The settings under which PostgreSQL prints the texts that `cast.py` reads."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PINNED_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        # The output functions read these settings: the texts below depend on them.
        "client_encoding": "UTF8",
        "DateStyle": "ISO",
        "IntervalStyle": "postgres",
        "TimeZone": "UTC",
        "extra_float_digits": "1",
        "bytea_output": "hex",
        "lc_monetary": "C",
        "quote_all_identifiers": "off",
        # An empty path: reg* values are printed with their schema, and no user's function shadows a name.
        "search_path": "",
        # A policy that would hide rows becomes an error.
        "row_security": "off",
        # PostgreSQL 18 reports with a warning that it continued without a publication.
        "client_min_messages": "warning",
        # A snapshot's transaction lives as long as its copy.
        "statement_timeout": "0",
        "idle_in_transaction_session_timeout": "0",
        "idle_session_timeout": "0",
    }
)
