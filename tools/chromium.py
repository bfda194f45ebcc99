"""Chromium for the tools and the tests: where it is and how it is started."""

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

FOUND = shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium: apt-get install chromium"
# Without a graphics card, and without a word to the outside.
QUIET = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()


@contextmanager
def started() -> Iterator[Browser]:
    """A browser of one's own, closed in the end.

    Raises:
        SystemExit: there is no Chromium; it says how to get it.
    """
    if not FOUND:
        sys.exit(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=FOUND, args=QUIET)
        yield browser
        browser.close()
