"""The documents of views: their cuts, definitions and previews.

Computing a view does not belong here (`lakeproof.views`).
"""
