"""Assets that only check other assets: proofs against PostgreSQL, and Great Expectations suites.

Comparing rows does not belong here (`lakeproof.proof`). The check of a slot is in `assets.slots`, beside its asset.
"""
