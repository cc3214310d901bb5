"""The place of a run's Spark work: its own process, or a `lakeproof` command elsewhere.

What is done does not belong here (`lakeproof.commands`), nor what Dagster shows of it (`assets`). docs/decisions/0039.

    resource.py    the resource that assets ask: a command's words in, its result out
    session.py     a command at another place, from its start to its result or error, through Dagster Pipes
    messages.py    this end of the messages, which lie in the lake
    launchers.py   how a place starts, watches and ends a command; a command of the user's
    polling.py     what platforms that are asked over HTTP have in common:
                   on_kubernetes.py, on_emr_serverless.py, on_databricks.py
"""

from resources.compute.resource import Compute

__all__ = ["Compute"]
