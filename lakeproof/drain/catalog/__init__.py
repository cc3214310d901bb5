"""The catalog beside the stream: looks at it, what they say of the stream's tables, and tables that come and go.

The reading of the catalog itself does not belong here (`lakeproof.postgres.catalog`).
"""
