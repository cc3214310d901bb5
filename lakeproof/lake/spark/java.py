"""The check that Spark will find a Java that it runs on.

Starting the session belongs to `session`. Spark itself gives the same message for a missing Java, an old one and a bad heap.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lakeproof.errors import DefiniteError

OLDEST_JAVA = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_ANSWER_S_MAX = 30
_INSTALL = f"install Java {OLDEST_JAVA} or newer, and name its folder in JAVA_HOME if it is not the first on PATH"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java: its major version, and all that it says of its version."""

    major: int
    text: str


def java_program() -> str:
    """Return the Java that Spark will start; raises DefiniteError if there is none."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise DefiniteError("Java", "there is none on PATH, and JAVA_HOME is not set", _INSTALL)
    return program


def check_java() -> Java:
    """Return the Java that Spark will start; raises DefiniteError if there is none, or it is too old.

    Costs one start of Java, 0.1 s.
    """
    program = java_program()
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=_ANSWER_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        reason = getattr(error, "strerror", None) or "it does not answer"
        raise DefiniteError(f"Java {program}", f"it could not be started ({reason})", _INSTALL) from None
    text = done.stderr + done.stdout
    version = _VERSION.search(text)
    if done.returncode != 0 or version is None:
        raise DefiniteError(f"Java {program}", "it does not say which version it is", _INSTALL)
    major = int(version[1])
    if major < OLDEST_JAVA:
        raise DefiniteError(f"Java {program}", f"it is version {major}, and Spark needs {OLDEST_JAVA}", _INSTALL)
    return Java(major, text)
