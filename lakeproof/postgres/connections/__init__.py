"""Connections to a server: the usual ones, and the channel that a replication stream is read from.

What is sent over a connection does not belong here.
"""
