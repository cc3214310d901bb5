"""Builds the wheel, installs it into an empty environment, and asks it for its version and its help: `make wheel`.

The contents of the wheel are chosen by `build_wheel.py`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / ".cache" / "wheel"
# Both halves of the package; a name of the locked versions alone may be installed.
_ASKED = (
    ("lakeproof", "--version"),
    ("lakeproof", "--help"),
    ("python", "-c", "import lakeproof, lakeproof_dagster; lakeproof_dagster.SourceComponent"),
)


def main() -> int:
    """Return 0 if the installed wheel answers, else the status of the step that failed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    binaries = FOLDER / "environment" / "bin"
    uv = [sys.executable, "-m", "uv"]
    try:
        _run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(FOLDER)], ROOT)
        (wheel,) = FOLDER.glob("*.whl")
        _run([*uv, "venv", "-q", "--python", sys.executable, str(binaries.parent)], FOLDER)
        locked = [
            *uv,
            "pip",
            "install",
            "-q",
            "--python",
            str(binaries / "python"),
            "-c",
            str(ROOT / "requirements.lock"),
        ]
        _run([*locked, f"lakeproof[dagster] @ {wheel.as_uri()}"], FOLDER)
        for name, *arguments in _ASKED:
            # Not in the checkout, whose packages would be imported in place of the installed ones.
            _run([str(binaries / name), *arguments], FOLDER)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    print(f"{wheel.name}: built, installed and asked")
    return 0


def _run(command: list[str], folder: Path) -> None:
    print("$", " ".join(command[-4:]), flush=True)
    subprocess.run(command, cwd=folder, check=True)


if __name__ == "__main__":
    sys.exit(main())
