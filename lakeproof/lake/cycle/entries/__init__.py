"""Copies that enter the lake in a cycle: linked as they are, by their keys, or corrected to the copy.

Taking a copy does not belong here (`lakeproof.snapshot`).
"""
