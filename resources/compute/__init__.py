"""The place of a run's Spark work: its own process, or a `lakeproof` command elsewhere.

What is done does not belong here (`lakeproof.commands`), nor what Dagster shows of it (`assets`).
Why it is a command: docs/decisions/0044-dagsters-half-for-others.md.

    resource.py    the resource that assets ask: a command's words in, its result out
    command.py     the command of `compute` as a child process: started, watched, ended
    session.py     the command from its start to its result or error, through Dagster Pipes
    messages.py    this end of the messages, which lie in the lake
"""

from resources.compute.resource import Compute

__all__ = ["Compute"]
