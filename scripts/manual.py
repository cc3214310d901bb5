"""Builds the manual as a site: the pages where they are in the repository, with the files that they link to.

The order of the pages is in mkdocs.yml. The site can be read without a network: the build fails if a page would load
anything from another host, if a link leads nowhere, or if a page is not in the navigation.

The forge and the site have one set of pages, so no link is rewritten. Should Zensical stop checking anchors or reading
mkdocs.yml, properdocs goes on with MkDocs' code. What code knows is made from code (`scripts/reference.py`) and committed:
the forge shows it, and a review shows that an error's text has changed.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CONFIGURATION = ROOT / "mkdocs.yml"
# A copy of the configuration and of the pages is laid out here, and the site is beside it.
FOLDER = ROOT / ".cache" / "site"
# Every page, at the place that it has in the repository: so a link is the same on the forge and in the site.
_PAGES = ("*.md", "docs/**/*.md", "docker/*.md", "lakeproof/**/*.md")
_LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)|(?:src|srcset)=\"([^\"]+)\"")
_FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
# What a browser fetches by itself. A link that a reader clicks may lead anywhere.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source)\b[^>]*\bsrc(?:set)?=\"((?:https?:)?//[^\"]+)\""
    r"|<link\b[^>]*\brel=\"?(?:stylesheet|preload|preconnect|icon)\"?[^>]*\bhref=\"((?:https?:)?//[^\"]+)\""
    r"|url\([\"']?((?:https?:)?//[^\"')]+)|@import\s+[\"']((?:https?:)?//[^\"']+)"
)
# They are linked from a page that lists all of them.
_LISTED_ELSEWHERE = "docs/decisions/"


class SiteError(Exception):
    """The site can't be built, or would not be whole."""


def pages() -> list[Path]:
    """Return every page, relative to the repository."""
    return sorted({path.relative_to(ROOT) for pattern in _PAGES for path in ROOT.glob(pattern)})


def linked_files(page: Path) -> Iterator[Path]:
    """Yield the files that a page links to or shows and that are no pages, relative to the repository."""
    text = _FENCED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    for link, picture in _LINK.findall(text):
        target = (ROOT / page).parent / (link or picture)
        if target.is_file() and target.suffix != ".md":
            yield target.resolve().relative_to(ROOT)


def named_pages(navigation: object) -> Iterator[str]:
    """Yield the pages of a navigation of mkdocs.yml."""
    if isinstance(navigation, str):
        yield navigation
    elif isinstance(navigation, list):
        for part in navigation:
            yield from named_pages(part)
    elif isinstance(navigation, dict):
        for part in navigation.values():
            yield from named_pages(part)


def not_in_navigation() -> list[str]:
    """Return the pages that no entry of the navigation leads to."""
    named = set(named_pages(_configuration()["nav"]))
    return [str(page) for page in pages() if str(page) not in named and not str(page).startswith(_LISTED_ELSEWHERE)]


def slug(heading: str, separator: str) -> str:
    """Return the anchor of a heading as the forge makes it, so that a link to it works in both places."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", separator)


def build() -> Path:
    """Build the site, and return its folder."""
    missing = not_in_navigation()
    if missing:
        raise SiteError("mkdocs.yml: not in the navigation: " + ", ".join(missing))
    folder = FOLDER.resolve()
    _lay_out(folder)
    return build_in(folder)


def build_in(folder: Path) -> Path:
    """Build the site of a folder that has a configuration and pages, and return the site's folder."""
    site = folder / str(_configuration()["site_dir"])
    command = [sys.executable, "-m", "zensical", "build", "--strict", "-f", str(folder / CONFIGURATION.name)]
    # `slug` is found from here.
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not (site / "index.html").is_file():
        raise SiteError(re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr))
    fetched = sorted(set(_fetched(site)))
    if fetched:
        raise SiteError("a reader without a network would miss: " + ", ".join(fetched))
    return site


def _lay_out(folder: Path) -> None:
    """Put the configuration, the pages and what they link to into an empty folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for page in pages():
        for file in (page, *linked_files(page)):
            copy = folder / _configuration()["docs_dir"] / file
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / file, copy)
    shutil.copyfile(CONFIGURATION, folder / CONFIGURATION.name)


def _fetched(site: Path) -> Iterator[str]:
    for path in site.rglob("*"):
        if path.suffix in {".html", ".css"}:
            text = path.read_text(encoding="utf-8")
            yield from (next(filter(None, address)) for address in _FETCHED.findall(text))


class _Loader(yaml.SafeLoader):
    """A safe loader that passes over what the site's builder makes of a tag."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def _configuration() -> dict[str, Any]:
    configuration: dict[str, Any] = yaml.load(CONFIGURATION.read_text(encoding="utf-8"), _Loader)  # noqa: S506  a safe one
    return configuration


def main() -> int:
    """Build the site; return 1 and say why if that fails."""
    if sys.version_info < (3, 11):
        print("manual: not built, since its builder needs Python 3.11; use a newer one to see it")
        return 0
    try:
        site = build()
    except SiteError as error:
        print(f"manual: {error}", file=sys.stderr)
        return 1
    print(f"manual: {site / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
