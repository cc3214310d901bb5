"""The checks before every start that the server is still the one that the landing was read from.

Repairing a gap does not belong here: `lakeproof.commands.recover` begins a new incarnation.

    gap.py           positions: do slot, landing and server meet?
    timeline.py      a promoted standby: does its history contain the landing's past?
    same_history.py  files copied back: did the server write another history before the landing's end?
"""

__all__ = ["gap", "same_history"]
