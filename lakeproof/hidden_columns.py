"""The names of the hidden columns that landing and lake share: the format's, and what scratch columns begin with.

What the columns hold is told in `lakeproof/landing/FORMAT.md` and `lakeproof/lake/FORMAT.md`.
"""

ORD = "_lp_ord"
LSN = "_lp_lsn"
SEQ = "_lp_seq"
OP = "_lp_op"
XID = "_lp_xid"
COMMIT_TIME = "_lp_commit_time"
UNCHANGED = "_lp_unchanged"
TEXT = "_lp_text"
KEY = "_lp_key"
DUP = "_lp_dup"
FROM = "_lp_from"
# Columns that the source dropped, or that could not carry on, are kept under such names.
PUT_AWAY = "_lp_dropped_"
