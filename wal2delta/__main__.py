"""`python -m wal2delta`: the same as the command `wal2delta`.

Everything is in `wal2delta.cli`.
"""

import sys

from wal2delta.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
