"""Streamlit's own files, from one reading to all who ask.

A first page asks for more than a hundred of them. Streamlit opens each anew in other threads, and
each change of thread waits for whatever computes; it compresses none. And a browser hears of half
of them only when the page is drawn, one layer after the other: so the page that it loads first
names those that all pages need.
"""

import asyncio
import gzip
import mimetypes
import re
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import streamlit

from breakeven.views.access.lasting import FOREVER

FOLDER = Path(streamlit.__file__).parent / "static"
PREFIX = "/static/"
NEEDED = ("Html", "BidiComponent", "Selectbox", "LinkButton", "DownloadButton", "ButtonGroup")
"""Parts of pages that Streamlit asks for when the first of their kind is drawn; most have these."""
TABLES = "DataFrame"
"""More than half as large as all others together. Where tables lie further down, a browser that
reads them first is connected 0.3 s later."""
WITHOUT_TABLES = ("/", "/live")
"""Pages that open with something else: Compare and Live."""
SYMBOLS = "MaterialSymbols-Rounded"
IMPORT = re.compile(r'(?:from|import)"\./([\w.-]+\.js)"')
"""What a script cannot begin without, as Streamlit's are written."""
HEAD_CHARACTERS = 20_000
"""Of a script, in which all that it imports is named."""
COMPRESSED = {".js", ".css", ".svg", ".json"}
TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}
"""Whatever the tables of this machine say."""
UNKNOWN = "application/octet-stream"
MIN_BYTES = 1_000
REST_SECONDS = 10.0
"""After the first file was asked for: who starts the dashboard waits for its first page, mostly on
the same machine, and compressing takes a third of a second."""
Headers = list[tuple[bytes, bytes]]


class Bundle:
    """ASGI middleware; what it does not know, Streamlit answers."""

    def __init__(self, app: Any, folder: Path = FOLDER) -> None:
        self.app, self.folder = app, folder
        self._read: dict[str, bytes] = {}
        self._compressed: dict[str, bytes] = {}
        self._rest: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self.app(scope, receive, send)
        elif scope["path"] in self._files:
            headers, body = self._answer(scope)
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            body = b"" if scope["method"] == "HEAD" else body
            await send({"type": "http.response.body", "body": body})
        else:
            await self.app(scope, receive, _Naming(send, self._links(scope["path"])).send)

    @cached_property
    def _files(self) -> dict[str, Path]:
        """By their paths in addresses; their names change with their content."""
        found = (self.folder / PREFIX.strip("/")).rglob("*")
        return {f"/{one.relative_to(self.folder).as_posix()}": one
                for one in found if one.is_file()}  # fmt: skip

    def _answer(self, scope: Any) -> tuple[Headers, bytes]:
        path = scope["path"]
        if path not in self._read:
            self._read[path] = self._files[path].read_bytes()
        if self._rest is None:
            loop = asyncio.get_running_loop()
            self._rest = loop.call_later(REST_SECONDS, loop.run_in_executor, None, self._compress)
        body = self._read[path]
        kind = TYPES.get(Path(path).suffix) or mimetypes.guess_type(path)[0] or UNKNOWN
        headers = [(b"content-type", kind.encode()), FOREVER, (b"vary", b"Accept-Encoding")]
        if path in self._compressed and _takes_gzip(scope["headers"]):
            body = self._compressed[path]
            headers.append((b"content-encoding", b"gzip"))
        return [*headers, (b"content-length", b"%d" % len(body))], body

    def _compress(self) -> None:
        """Whoever comes later may be far away."""
        for path, body in list(self._read.items()):
            if len(body) >= MIN_BYTES and Path(path).suffix in COMPRESSED:
                self._compressed[path] = gzip.compress(body, 6, mtime=0)
        self._rest = None

    def _links(self, path: str) -> bytes:
        """Elements of HTML that have a browser load what the page is going to need."""
        return self._first if path in WITHOUT_TABLES else self._first + self._of_tables

    @cached_property
    def _first(self) -> bytes:
        folder = self.folder / PREFIX.strip("/")
        links = [f'<link rel="preload" as="font" type="font/woff2" crossorigin '
                 f'href=".{PREFIX}media/{file.name}">'
                 for file in (folder / "media").glob(f"{SYMBOLS}.*.woff2")]  # fmt: skip
        return self._scripts(NEEDED) + "".join(links).encode()

    @cached_property
    def _of_tables(self) -> bytes:
        return self._scripts([TABLES], beside=NEEDED)

    def _scripts(self, parts: Iterable[str], beside: Iterable[str] = ()) -> bytes:
        """Links to the scripts of these parts that neither the page names nor those `beside`."""
        folder = self.folder / PREFIX.strip("/") / "js"
        page = (self.folder / "index.html").read_text()
        known = set(_with_imports(folder, beside))
        return "".join(
            f'<link rel="modulepreload" crossorigin href=".{PREFIX}js/{name}">'
            for name in _with_imports(folder, parts)
            if name not in page and name not in known
        ).encode()


class _Naming:
    """Sends an answer on; a page of HTML with `links` in its head."""

    def __init__(self, send: Any, links: bytes) -> None:
        self._send, self._links = send, links
        self._start: Any = None

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.start" and _is_page(message):
            self._start = message  # Its headers tell the length.
            return
        if self._start is not None:
            start, self._start = self._start, None
            body = message["body"].replace(b"</head>", self._links + b"</head>", 1)
            more = len(body) - len(message["body"])
            await self._send({**start, "headers": _longer(start["headers"], more)})
            message = {**message, "body": body}
        await self._send(message)


def _is_page(start: Any) -> bool:
    return start["status"] == 200 and any(
        name.lower() == b"content-type" and value.startswith(b"text/html")
        for name, value in start["headers"]
    )


def _longer(headers: Headers, more: int) -> Headers:
    """Without what tells one version of the page from another: it is not the file's any more."""
    kept = [(name.lower(), value) for name, value in headers]
    return [(name, b"%d" % (int(value) + more) if name == b"content-length" else value)
            for name, value in kept if name not in (b"etag", b"last-modified")]  # fmt: skip


def _takes_gzip(headers: Headers) -> bool:
    return any(name == b"accept-encoding" and b"gzip" in value for name, value in headers)


def _with_imports(folder: Path, names: Iterable[str]) -> list[str]:
    """The scripts of these names and all that they cannot begin without."""
    found: dict[str, None] = {}
    waiting = [file.name for name in names for file in folder.glob(f"{name}.*.js")]
    while waiting:
        name = waiting.pop()
        if name not in found and (folder / name).exists():
            found[name] = None
            with (folder / name).open() as script:
                waiting += IMPORT.findall(script.read(HEAD_CHARACTERS))
    return list(found)
