"""One reader in a real browser among those without one."""

import time
from itertools import cycle

EXECUTABLE = "/usr/bin/chromium"
OVER = "[data-testid=stApp][data-test-script-state=notRunning]"
PATIENCE = 120_000
"""Milliseconds."""
PAUSE = 4_000
PAGES = ("?experiment={one}", "run?experiment={one}", "experiments", "live")


def visits(address: str, until: float, ids: list[str]) -> tuple[list[float], list[str]]:
    """Seconds from the address to a page that is all there, each loaded anew, and what the pages'
    scripts complained of; the first page, which fills the browser's cache, does not count."""
    from playwright.sync_api import sync_playwright

    times: list[float] = []
    complaints: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=EXECUTABLE, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.on("pageerror", lambda error: complaints.append(str(error)))
        for page, one in zip(cycle(PAGES), cycle(ids), strict=False):
            begun = time.monotonic()
            tab.goto(f"{address}/{page.format(one=one)}", timeout=PATIENCE)
            tab.locator(OVER).wait_for(timeout=PATIENCE)
            times.append(time.monotonic() - begun)
            if time.monotonic() + PAUSE / 1000 > until:
                break
            tab.wait_for_timeout(PAUSE)
        browser.close()
    return times[1:], complaints
