"""A dashboard in team mode behind a real nginx with TLS, and a real provider of OpenID Connect."""

import re
import shutil
import socket
import ssl
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from breakeven.runner.folders.data_dir import DataDir
from tests.helpers.oidc.sign_in import SECRET, write_team
from tests.helpers.serving import ROOT, served
from tests.helpers.waiting import PATIENCE_SECONDS, wait_until

HERE = Path(__file__).parent
PROVIDER = ROOT / ".venv" / "oidc-provider"
"""Where npm puts the provider, at the versions and hashes of `package-lock.json`."""


@dataclass(frozen=True)
class Proxied:
    address: str
    behind: str
    """The dashboard's own address, past the proxy."""
    team_file: Path
    data_dir: DataDir


@contextmanager
def proxied(folder: Path) -> Iterator[Proxied]:
    """All three, gone at the end."""
    issuer, nginx = free_port(), free_port()
    address = f"https://localhost:{nginx}"
    team_file = write_team(folder / "team.toml", address, f"http://localhost:{issuer}")
    data_dir = DataDir(folder / "data")
    data_dir.path.mkdir()
    with ExitStack() as stack:
        stack.enter_context(provider(issuer, f"{address}/oauth2callback"))
        environment = {"BREAKEVEN_TEAM": str(team_file)}
        behind, _ = stack.enter_context(served(data_dir, environment=environment))
        stack.enter_context(nginx_of_docs(folder, nginx, behind))
        yield Proxied(address, behind, team_file, data_dir)


@contextmanager
def provider(port: int, *redirects: str) -> Iterator[None]:
    wanted = (HERE / "package-lock.json").read_bytes()
    lock = PROVIDER / "package-lock.json"
    if not lock.exists() or lock.read_bytes() != wanted:
        shutil.rmtree(PROVIDER, ignore_errors=True)
        shutil.copytree(HERE, PROVIDER, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        subprocess.run(["npm", "ci", "--silent"], cwd=PROVIDER, check=True)
    shutil.copy(HERE / "provider.mjs", PROVIDER)
    process = subprocess.Popen(
        ["node", "provider.mjs", str(port), SECRET, *redirects],
        cwd=PROVIDER, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_for(f"http://localhost:{port}/.well-known/openid-configuration")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


@contextmanager
def nginx_of_docs(folder: Path, port: int, behind: str) -> Iterator[None]:
    """nginx as docs/serving.md configures it, but for names and ports."""
    text = (ROOT / "docs/serving.md").read_text()
    (block,) = re.findall(r"```nginx\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"```sh\n(openssl .*?)```", text, re.DOTALL)
    local = {"/etc/ssl/": f"{folder}/", "bench.example.org": "localhost"}
    for before, after in local.items():
        block, command = block.replace(before, after), command.replace(before, after)
    block = block.replace("listen 443", f"listen {port}").replace("http://127.0.0.1:8501", behind)
    subprocess.run(command, shell=True, check=True, capture_output=True)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{block}\n}}\n"
    )
    process = subprocess.Popen(["nginx", "-e", f"{folder}/nginx.log", "-c", str(configuration)])
    try:
        wait_for(f"https://localhost:{port}/_stcore/health")
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_SECONDS)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def wait_for(address: str) -> None:
    trusting = ssl._create_unverified_context()

    def answers() -> bool:
        try:
            urllib.request.urlopen(address, timeout=10, context=trusting)
        except OSError:
            return False
        return True

    wait_until(answers)
