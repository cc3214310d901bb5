"""The commands by name.

What each does, as a result for people and programs, is in `source_commands`, `lake_commands` and `machine_commands`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping

from lakeproof.cli import lake_commands, machine_commands, source_commands
from lakeproof.cli.context import Context
from lakeproof.cli.results import Outcome

COMMANDS: Mapping[str, Callable[[Context, argparse.Namespace], Outcome]] = {
    "init": machine_commands.init,
    "check": source_commands.check,
    "plan": source_commands.plan,
    "apply": source_commands.apply,
    "bootstrap": source_commands.bootstrap,
    "drain": source_commands.drain,
    "recover": source_commands.recover,
    "teardown": source_commands.teardown,
    "compact": lake_commands.compact,
    "maintain": lake_commands.maintain,
    "refresh": lake_commands.refresh,
    "prove": lake_commands.prove,
    "status": lake_commands.status,
    "inspect": lake_commands.inspect,
    "fetch-jars": machine_commands.fetch_jars,
}
