"""The place of a run's Spark work: its own process, or a `lakeproof` command elsewhere.

What is done does not belong here (`lakeproof.commands`), nor what Dagster shows of it (`assets`). docs/decisions/0039.

    resource.py    the resource that assets ask: a command's words in, its result out
    session.py     a command at another place, from its start to its result or error, through Dagster Pipes
    messages.py    this end of the messages, which lie in the lake
    launchers.py   how a place starts, watches and ends a command
"""

from resources.compute.resource import Compute

__all__ = ["Compute"]
