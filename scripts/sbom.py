"""Writes a CycloneDX bill of materials: the locked Python packages that this interpreter installs, and the jars.

The versions do not belong here: `requirements.lock` and `lakeproof/lake/spark/jars.py` have them.

    python scripts/sbom.py FILE
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lakeproof import __version__  # noqa: E402  the checkout's own, after it is on the path
from lakeproof.lake.spark.jars import DELTA, S3  # noqa: E402  the same

LOCK = ROOT / "requirements.lock"
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def main() -> int:
    """Write the file and return 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path, metavar="FILE")
    options = parser.parse_args()
    bom = bill()
    options.file.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n", encoding="utf-8")
    print(f"{options.file}: {len(bom.components)} components")
    return 0


def bill() -> Bom:
    """Return the bill of materials, with every component as a dependency of the project."""
    bom = Bom(components=[*_packages(), *_jars()])
    bom.metadata.component = root = Component(
        name="lakeproof", version=__version__, type=ComponentType.APPLICATION, bom_ref="lakeproof"
    )
    bom.register_dependency(root, bom.components)
    return bom


def _packages() -> Iterator[Component]:
    """Yield the packages whose marker applies here, each with the hashes that its installation accepts."""
    for block in re.split(r"\n(?=[a-z0-9])", LOCK.read_text(encoding="utf-8")):
        if block.startswith("#"):
            continue
        required = Requirement(block.split("\\\n")[0].strip())
        if required.marker is not None and not required.marker.evaluate():
            continue
        version = str(required.specifier).removeprefix("==")
        yield Component(
            name=required.name,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("pypi", name=required.name, version=version),
            bom_ref=f"pypi:{required.name}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=digest) for digest in _HASH.findall(block)],
        )


def _jars() -> Iterator[Component]:
    for coordinate, sha256 in {**DELTA.checksums, **S3.checksums}.items():
        group, artifact, version = coordinate.split(":")
        yield Component(
            name=artifact,
            group=group,
            version=version,
            type=ComponentType.LIBRARY,
            purl=PackageURL("maven", namespace=group, name=artifact, version=version),
            bom_ref=f"maven:{coordinate}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)],
        )


if __name__ == "__main__":
    sys.exit(main())
