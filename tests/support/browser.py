"""A real browser for tests of the console: Chromium of the system, driven by Playwright."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium: run scripts/chromium.sh")


@contextmanager
def chromium() -> Iterator[Browser]:
    """A running browser without a window."""
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


def keep_screenshot(page: Page, name: str, *, whole: bool = True) -> None:
    """Save a picture of the page in the folder that SLACKWATER_SCREENSHOTS names, if it is set."""
    folder = os.environ.get("SLACKWATER_SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=whole)
