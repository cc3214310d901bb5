"""What stands in the way of replicating a source: each check reads the catalog and returns findings with their remedies.

Nothing here changes the server, and nothing decides whether a command goes on.

    source.py        server, role, slot, publication; how changes are spread over slots
    tables.py        single tables
    identity.py      identities
    privileges.py    what a role lacks, and what grants it
    unselected.py    tables that are published and not selected
    findings.py      findings as values
"""
