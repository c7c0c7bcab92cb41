"""One browser that draws pictures, started when one is asked for and kept while it is used.

Starting a Chromium takes seconds, drawing a figure in one a fraction of a second. It is one for all
sessions, draws one picture after the other, is started anew if it was killed, closes after some
minutes without work (beside a training that is measured nothing should be awake), and ends with
this process: it listens on a pipe that ends, too.
"""

import asyncio
import atexit
import base64
import contextlib
import shutil
import threading
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.errors import RunnerError

if TYPE_CHECKING:
    from kaleido import Kaleido

T = TypeVar("T")
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
IDLE_SECONDS = 300.0
"""After which a browser that nobody used closes."""
MAX_SECONDS = 60.0
"""That one picture may take; a browser that hangs is started anew."""
CLOSING_SECONDS = 10.0


class NotDrawn(RunnerError):
    """The browser gave no picture."""


@cache
def find_browser() -> str | None:
    """A browser that can draw a picture of a figure, or None."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


class KeptBrowser:
    """A browser that is there when it is needed. Safe to use from several threads."""

    def __init__(self, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._one_at_a_time = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._kaleido: Kaleido | None = None
        self._closing: asyncio.TimerHandle | None = None
        atexit.register(self.close)

    def picture(self, figure: dict[str, Any], options: dict[str, Any]) -> bytes:
        """A figure as plotly.js reads it, drawn; `options`: format, width, height, scale.

        Raises `NotDrawn`.
        """

        async def draw(browser: "Kaleido") -> bytes:
            drawn: bytes = await browser.calc_fig(figure, options)
            return drawn

        return self._use(draw)

    def printed(self, page: Path, ready: str) -> bytes:
        """A page of this machine as PDF, once what `ready` says, an expression of JavaScript that
        gives a promise, has come true. Raises `NotDrawn`."""

        async def print_page(browser: "Kaleido") -> bytes:
            tab = await browser.create_tab(page.as_uri())
            try:
                await _ask(tab, "Page.enable")
                await _come_true(tab, ready)
                answer = await _ask(
                    tab, "Page.printToPDF", printBackground=True, preferCSSPageSize=True
                )
                return base64.b64decode(answer["data"])
            finally:
                await tab.close()

        return self._use(print_page)

    def warm_up(self) -> None:
        """Starts the browser in the background, while somebody still chooses what to draw."""

        async def nothing(browser: "Kaleido") -> None:
            return None

        if find_browser() is not None and self._kaleido is None:
            threading.Thread(target=self._quietly, args=(nothing,), daemon=True).start()

    def close(self) -> None:
        """Ends the browser; the next picture starts another."""
        with self._one_at_a_time:
            if self._loop is not None:
                with contextlib.suppress(Exception):
                    self._wait(self._drop(), CLOSING_SECONDS)

    def _quietly(self, work: Callable[["Kaleido"], Awaitable[Any]]) -> None:
        with contextlib.suppress(NotDrawn):
            self._use(work)

    def _use(self, work: Callable[["Kaleido"], Awaitable[T]]) -> T:
        """A browser that was killed, or hangs, fails once; a new one then does the work."""
        with self._one_at_a_time:
            try:
                return self._wait(self._work(work), MAX_SECONDS)
            except Exception:
                with contextlib.suppress(Exception):
                    self._wait(self._drop(), CLOSING_SECONDS)
            try:
                return self._wait(self._work(work), MAX_SECONDS)
            except Exception as error:
                with contextlib.suppress(Exception):
                    self._wait(self._drop(), CLOSING_SECONDS)
                raise NotDrawn(
                    f"the browser that draws pictures gave none ({type(error).__name__}: {error}). "
                    "Try again, or use the camera in the chart's own toolbar"
                ) from error

    def _wait(self, work: Awaitable[T], seconds: float) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="drawing", daemon=True).start()
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop)
        return future.result(seconds + 5.0)

    async def _work(self, work: Callable[["Kaleido"], Awaitable[T]]) -> T:
        if self._closing is not None:
            self._closing.cancel()
        if self._kaleido is None:
            from kaleido import Kaleido  # here, because no page needs it before a picture

            # MathJax would be asked of a stranger's server, and nothing here is set by it.
            browser = Kaleido(n=1, timeout=MAX_SECONDS, mathjax=False, path=find_browser())
            await browser.open()
            self._kaleido = browser
        try:
            return await work(self._kaleido)
        finally:
            loop = asyncio.get_running_loop()
            self._closing = loop.call_later(
                self._idle_seconds, lambda: loop.create_task(self._drop())
            )

    async def _drop(self) -> None:
        browser, self._kaleido = self._kaleido, None
        if browser is not None:
            await browser.close()


async def _come_true(tab: Any, expression: str) -> None:
    """Waits for an expression of JavaScript, or the promise that it gives, to be true. As long as
    the page is not loaded it fails, or its answer is lost with the page before: it is asked again.
    """
    loop = asyncio.get_running_loop()
    deadline, problem = loop.time() + MAX_SECONDS / 2, ""
    while loop.time() < deadline:
        try:
            answer = await _ask(tab, "Runtime.evaluate", expression=expression, awaitPromise=True,
                                userGesture=True)  # fmt: skip
        except RuntimeError as error:
            problem = str(error)
        else:
            if answer.get("result", {}).get("value") is True:
                return
            problem = answer.get("exceptionDetails", {}).get("text", "it is not ready")
        await asyncio.sleep(0.1)
    raise RuntimeError(f"the page did not get ready to be printed: {problem}")


async def _ask(tab: Any, command: str, **params: Any) -> dict[str, Any]:
    answer = await tab.send_command(command, params=params)
    if "error" in answer:
        raise RuntimeError(f"{command}: {answer['error']}")
    found: dict[str, Any] = answer.get("result", {})
    return found


browser = KeptBrowser()
"""The one of this process."""
