"""Draws figures as pictures in a Chromium that lives as long as the request."""

import asyncio
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from threading import BoundedSemaphore
from typing import Any

from breakeven.runner.errors import RunnerError

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MAX_SECONDS = 60.0
"""For one picture, and for starting the browser."""
AT_ONCE = BoundedSemaphore(2)
"""Browsers of all readers together; further requests wait."""

Drawing = tuple[dict[str, Any], dict[str, Any]]
"""A figure as plotly.js reads it, and kaleido's options: format, width, height, scale."""


class NotDrawn(RunnerError):
    """The browser gave no picture."""


@cache
def find_browser() -> str | None:
    """The path of a browser that can draw, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


def draw(drawings: Sequence[Drawing]) -> list[bytes]:
    """Draws each figure, all of them in one browser. Raises `NotDrawn`."""
    # A thread of its own, because the calling thread may run an event loop already.
    with AT_ONCE, ThreadPoolExecutor(1) as thread:
        try:
            return thread.submit(asyncio.run, _draw(drawings)).result()
        except Exception as error:
            raise NotDrawn(
                f"the browser that draws pictures failed ({type(error).__name__}: {error}). "
                "Try again, or use the camera in the chart's own toolbar"
            ) from error


async def _draw(drawings: Sequence[Drawing]) -> list[bytes]:
    from kaleido import Kaleido  # here, because only pictures need kaleido

    # Without MathJax: kaleido would load MathJax from the internet, and no figure needs MathJax.
    browser = Kaleido(n=1, timeout=MAX_SECONDS, mathjax=False, path=find_browser())
    try:
        await asyncio.wait_for(browser.open(), MAX_SECONDS)
        return [
            await asyncio.wait_for(browser.calc_fig(figure, options), MAX_SECONDS)
            for figure, options in drawings
        ]
    finally:
        await browser.close()
