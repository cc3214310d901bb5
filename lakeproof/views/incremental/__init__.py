"""A view's correction from what its tables have changed: which changes can be used, and what follows from them.

The commit of a correction does not belong here, nor the computation as a whole (`lakeproof.views.refresh`).
"""
