"""The bill of materials names every locked package that is installed here, and the jars."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from lakeproof.lake.spark.jars import DELTA, S3

ROOT = Path(__file__).resolve().parents[3]


def test_the_bill_names_what_is_installed(tmp_path: Path) -> None:
    """The bill has versions and checksums of packages and jars."""
    file = tmp_path / "sbom.json"
    subprocess.run([sys.executable, str(ROOT / "scripts" / "sbom.py"), str(file)], check=True, capture_output=True)
    bill = json.loads(file.read_text(encoding="utf-8"))
    actual = {component["purl"]: component for component in bill["components"]}
    for name in ("pyspark", "psycopg", "dagster", "numpy"):
        assert actual[f"pkg:pypi/{name}@{version(name)}"]["hashes"]
    for coordinate, sha256 in {**DELTA.checksums, **S3.checksums}.items():
        group, artifact, number = coordinate.split(":")
        (message,) = actual[f"pkg:maven/{group}/{artifact}@{number}"]["hashes"]
        assert message == {"alg": "SHA-256", "content": sha256}
    assert len(actual) > 100
