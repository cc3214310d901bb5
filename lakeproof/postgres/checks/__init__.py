"""What stands in the way of replicating a source: each check reads the catalog and returns findings with their remedies.

Nothing here changes the server, and nothing decides whether a command goes on.

    source.py        server, role, slot, publication
    tables.py        single tables
    identity.py      identities
    privileges.py    what a role lacks, and what grants it
    unselected.py    tables that are published and not selected
    spread.py        how changes are spread over slots
    findings.py      findings as values
"""
