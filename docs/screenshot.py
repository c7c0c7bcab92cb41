"""Draws the pictures of README anew, all of the recorded example: Compare, in the light theme; the
losses over the time that one waits for, in the dark one; the answer as a presentation has it.

    .venv/bin/python docs/screenshot.py

Serves the dashboard over an empty data folder of its own and photographs it with the Chromium that
the browser tests use.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

HERE = Path(__file__).parent
REVIEWS = next((HERE.parent / "examples").glob("bert-base-reviews-*/*.baseline"))
EXAMPLE = REVIEWS.name.partition(".")[0]
WHY = 3
"""Number of the screen of a presentation that says where the time goes."""
PATIENCE_SECONDS = 60
HIDE_CHROME = ".stAppDeployButton, .stMainMenu, [data-testid=stStatusWidget] { display: none }"
"""Streamlit's own buttons, which are no part of what the picture shows."""


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        server = subprocess.Popen(
            [sys.executable, "serve.py"],
            cwd=HERE.parent,
            env={**os.environ, "BREAKEVEN_DATA": folder, "BREAKEVEN_PORT": str(port)},
            stdout=subprocess.DEVNULL,
        )
        try:
            wait_until_served(f"http://127.0.0.1:{port}/_stcore/health")
            photograph(f"http://127.0.0.1:{port}")
        finally:
            server.terminate()
            server.wait()


def wait_until_served(url: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            urllib.request.urlopen(url, timeout=1)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def photograph(address: str) -> None:
    with sync_playwright() as playwright:
        path = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = opened(browser, address, 1440, 1100, "light")
        page.screenshot(path=HERE / "screenshot.png")
        page = opened(
            browser,
            f"{address}/experiment?experiment={EXAMPLE}&tab=Learning&loss=By+time",
            1440,
            900,
            "dark",
        )
        page.locator(".st-key-chart-loss").scroll_into_view_if_needed()
        page.wait_for_timeout(1000)
        page.screenshot(path=HERE / "screenshot-time.png")
        page = browser.new_page(viewport={"width": 1280, "height": 720}, locale="en-GB")
        page.goto(f"{address}/report/{EXAMPLE}#present-{WHY}")
        page.locator(".js-plotly-plot").first.wait_for(timeout=PATIENCE_SECONDS * 1000)
        page.wait_for_timeout(2000)
        page.screenshot(path=HERE / "screenshot-present.png")
        browser.close()


def opened(browser: Browser, address: str, width: int, height: int, theme: Any) -> Page:
    """A page of the dashboard whose charts have settled."""
    page = browser.new_page(
        viewport={"width": width, "height": height}, color_scheme=theme, locale="en-GB"
    )
    page.goto(address)
    page.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=PATIENCE_SECONDS * 1000)
    page.add_style_tag(content=HIDE_CHROME)
    page.wait_for_timeout(2000)
    return page


if __name__ == "__main__":
    main()
