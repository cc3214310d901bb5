"""What stands in the way of replicating a source: each check reads the catalog and returns findings with their remedies.

Nothing here changes the server, and nothing decides whether a command goes on.

    source.py          server, role, slot, publication
    tables.py          single tables
    identity.py        identities
    privileges.py      what a role lacks
    unselected.py      tables that are published and not selected
    catalog_tables.py  tables that can end a stream for ever
    spread.py          how changes are spread over slots
    write_rates.py     how much tables write
    findings.py        findings as values
"""
