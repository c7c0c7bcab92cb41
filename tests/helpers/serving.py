"""Serves a dashboard, or another Streamlit app, for tests; and a server that receives
notifications."""

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from breakeven.runner.files import is_locked
from breakeven.runner.protocol.data_dir import DataDir
from tests.helpers.machine import MACHINE, keep
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

ROOT = Path(__file__).parents[2]


@contextmanager
def served(
    folder: DataDir,
    app: str = "serve.py",
    environment: Mapping[str, str] | None = None,
    supervised: bool = True,
    program: Sequence[str] = (sys.executable, "serve.py"),
    cwd: Path = ROOT,
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Serves its own dashboard; gives its address and process. Everything that it started is gone
    at the end. It knows what the machine offers, so it need not ask torch. `supervised`: whether it
    may start a supervisor, whose end is awaited; `program` is served, and started in `cwd`."""
    if not folder.capabilities_file.exists():
        keep(folder, MACHINE)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = (folder.path / "dashboard.log").open("a")
    server = subprocess.Popen(
        list(program)
        if app == "serve.py"
        else [
            sys.executable,
            "-m",
            "streamlit",
            "run",
            app,
            "--server.headless",
            "true",
            "--server.address",
            "127.0.0.1",
            "--server.port",
            str(port),
        ],
        cwd=cwd,
        env={
            **os.environ,
            "BREAKEVEN_DATA": str(folder.path),
            "BREAKEVEN_PORT": str(port),
            **(environment or {}),
        },
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    try:
        wait_until_served(f"http://127.0.0.1:{port}/_stcore/health", server)
        yield f"http://127.0.0.1:{port}", server
    finally:
        for run in folder.run_dirs():
            run.request_cancel()
        server.terminate()
        server.wait(PATIENCE_SECONDS)
        log.close()
        wait_until(lambda: not supervised or not is_locked(folder.supervisor_lock))


def wait_until_served(address: str, server: subprocess.Popen[bytes]) -> None:
    def answers() -> bool:
        assert server.poll() is None, "the dashboard ended at once"
        try:
            urllib.request.urlopen(address, timeout=10)
        except OSError:
            return False
        return True

    wait_until(answers)


class Receiver(ThreadingHTTPServer):
    """Refuses the first `refuse` requests, and keeps the bodies of all others."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ReceiverRequest)
        self.refuse = 0
        self.received: list[dict[str, Any]] = []
        self.sends_to = ""
        """Another address, and what was asked for there."""
        self.looked_up: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.address = f"json://127.0.0.1:{self.server_address[1]}/hooks/abcdefgh"


class ReceiverRequest(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.refuse -= 1
        if self.server.sends_to:
            self.send_response(302)
            self.send_header("location", self.server.sends_to)
            self.end_headers()
            return
        if self.server.refuse >= 0:
            self.send_error(503)
            return
        self.server.received.append(json.loads(body))
        self.send_response(204)
        self.end_headers()

    def do_GET(self) -> None:
        self.server.looked_up.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return
