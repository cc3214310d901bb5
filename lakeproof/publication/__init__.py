"""The publication: what the configuration asks for, and the SQL that leads there.

Running it belongs to `lakeproof.commands.publish`.

    draft.py       the publication that a source needs, as SQL
    wishes.py      tables and columns that a publication should have
    statements.py  the SQL from what is to what should be
"""

__all__ = ["draft", "wishes"]
