"""The documents of views: their cuts, definitions and previews.

Computing a view does not belong here (`lakeproof.views`).

    cuts.py         the views' cuts
    definitions.py  what each view was applied as, and previews of another definition
"""
