"""Assets that only check other assets: proofs against PostgreSQL, and Great Expectations suites.

Comparing rows does not belong here (`lakeproof.proof`). The check of a slot is in `assets.slots`, beside its asset.

    proof.py         the proof assets of a source, and their checks
    outcomes.py      a proof's result for one table, history or view, as plain values
    expectations.py  the configured Great Expectations, as checks on an asset of their own
"""
