"""Benchmarks of proofs.

rows.py     a proof, against a plain checksum
changes.py  a proof of what changed
many.py     every command over 200 small tables
"""
