"""What the server's catalog says of tables, types and publications, read and made into values.

What is wrong with it does not belong here (`lakeproof.postgres.checks`).
"""
