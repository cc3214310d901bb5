"""Fetches the jars for Delta and S3, or compiles the loops to machine code: the last step of the set-up and of an image.

A module of its own, so that the engine's names are checked with its types: `setup.py` runs before anything is installed.

    .venv/bin/python -m scripts.install.warm_up jars|loops
"""

from __future__ import annotations

import sys


def fetch_jars() -> None:
    """Fetch the jars into $LAKEPROOF_JARS, checksums compared."""
    from lakeproof.lake.spark.jars import DELTA, S3, jars

    jars(sets=(DELTA, S3))


def compile_loops() -> None:
    """Run every loop once: its machine code is stored beside its source."""
    from lakeproof.landing.segments.row_sums import warm_up_sums
    from lakeproof.pgoutput.warm_up import warm_up_decoder
    from lakeproof.postgres.connections.framing import warm_up_framing
    from lakeproof.postgres.copying.text import warm_up_copy_text
    from lakeproof.values.exact_texts import warm_up_exact_texts

    warm_up_decoder()
    warm_up_sums()
    warm_up_copy_text()
    warm_up_framing()
    warm_up_exact_texts()


if __name__ == "__main__":
    {"jars": fetch_jars, "loops": compile_loops}[sys.argv[1]]()
