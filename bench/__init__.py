"""Benchmarks: ratios of wal2delta to the bare tools, measured in one run. Tests belong to `tests`."""
