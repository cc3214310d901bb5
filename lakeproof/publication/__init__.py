"""The publication: what the configuration asks for, and the SQL that leads there.

Running it belongs to `lakeproof.commands.publish`.

    wishes.py   tables and columns that a publication should have   statements.py   the SQL from what is to what should be
"""

__all__ = ["candidates", "draft"]
