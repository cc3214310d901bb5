"""The manifests of a chain that are kept while `Chain.read_once` lasts, so that none is read twice."""

from __future__ import annotations

from dataclasses import dataclass, field

from lakeproof.landing.segments.manifest import Manifest
from lakeproof.lsn import Lsn

# The most files and columns named by the manifests that `read_once` keeps: 50 to 100 MB. What comes after is read each time.
KEPT_NAMES_MAX = 100_000


@dataclass(slots=True)
class KeptManifests:
    """The manifests that were read, with their checksums, by number."""

    names_max: int
    manifests: dict[int, tuple[Manifest, str]] = field(default_factory=dict)
    names: int = 0
    start_read: bool = False

    def keep(self, read: tuple[Manifest, str]) -> None:
        """Keep a manifest with its checksum, unless they are too many."""
        manifest = read[0]
        self.names += 1 + len(manifest.files) + sum(len(entry.version.columns) for entry in manifest.schemas)
        if self.names <= self.names_max:
            self.manifests[manifest.number] = read

    def around(self, position: Lsn, low: int, high: int) -> tuple[int, int]:
        """Narrow the numbers between which the first manifest that ends after `position` lies."""
        for number, (manifest, _) in list(self.manifests.items()):
            if manifest.end_lsn > position:
                high = min(high, number)
            else:
                low = max(low, number + 1)
        return low, high
