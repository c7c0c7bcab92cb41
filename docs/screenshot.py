"""Draws docs/screenshot.png anew: the Compare page of the recorded example, in the light theme.

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

from playwright.sync_api import sync_playwright

PICTURE = Path(__file__).with_name("screenshot.png")
WIDTH, HEIGHT = 1440, 1100
PATIENCE_SECONDS = 60
HIDE_CHROME = ".stAppDeployButton, .stMainMenu, [data-testid=stStatusWidget] { display: none }"
"""Streamlit's own buttons, which are no part of what the picture shows."""


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="breakeven-") as folder:
        server = subprocess.Popen(
            [sys.executable, "serve.py"], cwd=PICTURE.parent.parent,
            env={**os.environ, "BREAKEVEN_DATA": folder, "BREAKEVEN_PORT": str(port)},
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
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
        page = browser.new_page(
            viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-GB"
        )
        page.goto(address)
        page.locator(".js-plotly-plot .legend").first.wait_for(timeout=PATIENCE_SECONDS * 1000)
        page.add_style_tag(content=HIDE_CHROME)
        page.wait_for_timeout(2000)  # until the charts below have settled, too
        page.screenshot(path=PICTURE)
        browser.close()


if __name__ == "__main__":
    main()
