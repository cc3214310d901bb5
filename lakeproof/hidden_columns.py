"""The names of the format's hidden columns, which landing and lake share, and the prefix of scratch columns.

The prefix is short, since it stands before each name in everybody's queries. What
the columns hold is described in `lakeproof/landing/FORMAT.md` and `lakeproof/lake/FORMAT.md`.

A scratch column exists within a Spark plan only: nothing that begins with `SCRATCH_PREFIX` is ever written to Delta or to
Parquet. A source column with either prefix gets another name in the lake (`lakeproof.schema.lake_names`).
"""

# The prefix of the lake's own columns.
HIDDEN_PREFIX = "_lp_"
SCRATCH_PREFIX = "__lp_"

ORD = "_lp_ord"
LSN = "_lp_lsn"
SEQ = "_lp_seq"
OP = "_lp_op"
XID = "_lp_xid"
COMMIT_TIME = "_lp_commit_time"
# PostgreSQL's number of a commit time that no calendar holds.
COMMIT_NUMBER = "_lp_commit_number"
UNCHANGED = "_lp_unchanged"
TEXT = "_lp_text"
KEY = "_lp_key"
DUP = "_lp_dup"
FROM = "_lp_from"
MESSAGE = "_lp_message"
# Columns that the source dropped, or that could not be carried over, keep their values under names with this prefix.
PUT_AWAY = "_lp_dropped_"


def scratch(name: str) -> str:
    """Return the name of a column that lives within a Spark plan and is never written."""
    return f"{SCRATCH_PREFIX}{name}"


# Of rows that differ between two versions: true for a row that came, false for one that went.
CAME = scratch("came")
