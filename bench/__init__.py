"""Benchmarks: ratios of lakeproof to the bare tools, measured in one run. Tests belong to `tests`."""
