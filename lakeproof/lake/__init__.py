"""The lake: cycles and their documents, history and current tables, reading at a cut; Spark lives here.

Nothing here talks to PostgreSQL. Importing the package, `documents` or `lease` does not import Spark; the other modules do.
"""
