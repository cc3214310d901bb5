"""`python -m lakeproof`: the same as the command `lakeproof`."""

import sys

from lakeproof.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
