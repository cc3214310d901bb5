"""The documents of views: their cuts, definitions and previews.

Computing a view does not belong here (`lakeproof.views`).

    cuts.py         the views' cuts
    definitions.py  what each view was applied as
    previews.py     another definition, computed and not applied
"""
