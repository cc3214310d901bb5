"""Source against lake at one position: the same exact forms on both sides, summed in buckets.

Making the snapshot and the cycle that ends where it stands belongs to `lakeproof.commands.prove`.
"""
