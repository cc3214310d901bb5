"""A Delta table's log: its commits, the state that they add up to, its checkpoints and its protocol.

Writing a version does not belong here (`lakeproof.lake.delta.committer`).

    commits.py         reading single commits
    state.py           a version whole, kept between commits
    checkpoint.py      a version in one file
    cleaned.py         a log without the commits that no cut names
    changed_places.py  rows that came and went
    protocol.py        what writers and readers must know
"""
