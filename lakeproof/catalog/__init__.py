"""The source's catalog as values, and what a difference between two readings calls for.

Reading the catalog does not belong here (`lakeproof.postgres`), nor acting on a difference (`lakeproof.lake.planning`).

    fingerprint.py         one reading
    differences.py         two readings compared, with the table of decisions
    attribute_numbers.py   the attribute numbers of a Relation message's columns
"""
