"""The addresses at which metrics are served, and the section about them; serving them does not belong here.

An address is `host:port`, or a port alone, which is one of this machine's loopback: nothing is open to a network unless the
configuration says so.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

from lakeproof.config.section import Model
from lakeproof.config.values import Text, Whole

_ADDRESS = re.compile(r"(?:(?P<host>[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):)?(?P<port>[0-9]{1,5})")
_LOOPBACK = "127.0.0.1"
_PORT_MAX = 65_535


def read_address(value: object) -> str | None:
    """Return an address in full, `host:port`; raises ValueError for what is none."""
    if value is None:
        return None
    match = None if isinstance(value, bool) else _ADDRESS.fullmatch(str(value))
    if match is None or not 1 <= int(match["port"]) <= _PORT_MAX:
        raise ValueError("is no address: the form is host:port, or a port, which is one of the loopback")
    return f"{match['host'] or _LOOPBACK}:{int(match['port'])}"


def host_and_port(address: str) -> tuple[str, int]:
    """Return the two parts of an address in full."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


Address = Annotated[Text | None, BeforeValidator(read_address)]


class MetricsConfig(Model):
    """Metrics of all sources."""

    tables_max: Whole = Field(200, ge=0, le=10_000)
    """So many tables have figures of their own, those that change first; the others are counted together, as `other`."""
