"""Cycles and steps that bring no changes: files, retention, rebuilt tables, and logs that somebody else wrote or broke.

When they are due does not belong here.
"""
