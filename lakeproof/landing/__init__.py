"""The landing: the store, the segment format, the chain of manifests, and looking inside them.

Nothing here talks to PostgreSQL, and nothing here needs Spark. The format is FORMAT.md beside this file.
"""
