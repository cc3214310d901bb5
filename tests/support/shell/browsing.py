"""A browser for the tests of the UI: a page that is looked at as a person does, by its texts, and pictures of it.

Which pages, and what should be there, belongs to the tests. Everything waits for a condition, nothing for a time.
With LAKEPROOF_PICTURES=docs/pictures the pictures of the manual are written there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from scripts.fetch.browser import CHROMIUM, arguments

VARIABLE = "LAKEPROOF_PICTURES"
# A page takes seconds on a machine that has other things to do; what a run brings has its own limit.
_PAGE_S = 90.0
_LOOK_AGAIN_S = 30.0
# Small enough that a picture is readable on a page of the manual, and takes few bytes.
_SIZE = (1120, 660)


@dataclass(frozen=True, slots=True)
class Browser:
    """A tab on the UI at `url`; `errors` are those that its pages have thrown."""

    page: Page
    url: str
    errors: list[str]

    def open(self, path: str) -> None:
        """Open a page of the UI."""
        self.page.goto(self.url + path, wait_until="domcontentloaded")

    def open_asset(self, key: str, view: str = "overview") -> None:
        """Open a tab of an asset's page."""
        self.open(f"/assets/{key}?view={view}")

    def text(self, text: str) -> Locator:
        """The first place with this text that can be seen."""
        return self.page.get_by_text(text).filter(visible=True).first

    def sees(self, *texts: str, within_s: float = _PAGE_S) -> None:
        """Wait until the page shows each text."""
        for text in texts:
            expect(self.text(text)).to_be_visible(timeout=within_s * 1000)

    def button(self, name: str) -> Locator:
        """A button by its label."""
        return self.page.get_by_role("button", name=name).filter(visible=True).first

    def comes_to_see(self, path: str, *texts: str, within_s: float) -> None:
        """Wait until the page at `path`, opened again and again, shows all texts: what a run brings."""
        self.comes_true(path, lambda: all(self.text(text).is_visible() for text in texts), f"{texts}", within_s)

    def comes_true(self, path: str, condition: Callable[[], bool], claim: str, within_s: float) -> None:
        """Wait until `condition` holds on the page at `path`, opened again and again."""
        deadline = time.monotonic() + within_s
        while True:
            self.open(path)
            looked = time.monotonic()
            while time.monotonic() < looked + _LOOK_AGAIN_S:
                if condition():
                    return
                self.page.wait_for_timeout(250)
            assert time.monotonic() < deadline, f"{path} did not show {claim}: {self.page.inner_text('body')[-1500:]}"

    def picture(self, name: str) -> None:
        """Write what the tab shows as a picture of the manual, if they are asked for."""
        folder = os.environ.get(VARIABLE)
        if folder:
            self.page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled", caret="hide")


@contextmanager
def browser(url: str, scheme: Literal["light", "dark"] = "light") -> Iterator[Browser]:
    """A browser on the UI at `url`; skips the test without one."""
    program = CHROMIUM.find()
    if program is None:
        pytest.skip(f"no browser: {CHROMIUM.remedy}")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=program, args=arguments())
        page = chromium.new_page(viewport={"width": _SIZE[0], "height": _SIZE[1]}, color_scheme=scheme)
        page.set_default_timeout(_PAGE_S * 1000)
        expect.set_options(timeout=_PAGE_S * 1000)
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield Browser(page, url, errors)
        chromium.close()
