"""A dashboard in team mode behind a real nginx with TLS, a real mod_auth_openidc of Apache, and a
real provider of OpenID Connect."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
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
ACCOUNT = "www-data"
"""Under which Debian's nginx and Apache serve."""
MODULES = Path("/usr/lib/apache2/modules")
NEEDED = ("mpm_event", "authn_core", "authz_core", "authz_user", "headers", "alias", "proxy",
          "proxy_http", "auth_openidc")  # fmt: skip
"""Modules of Apache that docs/operating.md enables, and those that Debian enables."""


def missing() -> str:
    """Which program a test of the proxies lacks, to skip it; empty if all are there."""
    lacking = [name for name in ("nginx", "apache2", "openssl") if shutil.which(name) is None]
    is_module_there = (MODULES / "mod_auth_openidc.so").exists()
    return ", ".join(lacking) or ("" if is_module_there else "mod_auth_openidc")


@dataclass(frozen=True)
class Proxied:
    address: str
    sign_in: str
    """The address of the proxy that has people sign in, past the one with TLS."""
    socket: Path
    settings: Path
    data_dir: DataDir


@contextmanager
def proxied(folder: Path) -> Iterator[Proxied]:
    """All four, gone at the end."""
    issuer, tls, apache = free_port(), free_port(), free_port()
    address, sign_in = f"https://localhost:{tls}", f"http://127.0.0.1:{apache}"
    data_dir = DataDir(folder / "data")
    data_dir.path.mkdir()
    settings = write_team(data_dir.path)
    sockets = Path(tempfile.mkdtemp())  # Within `folder` no other account reaches anything.
    local = {
        "https://login.example.org": f"http://localhost:{issuer}",
        "https://bench.example.org": address,
        "https%3A%2F%2Fbench.example.org": f"https%3A%2F%2Flocalhost%3A{tls}",
        "/run/breakeven/dashboard.sock": f"{sockets}/dashboard.sock",
        "secret of the provider for this dashboard": SECRET,
        "127.0.0.1:4180": f"127.0.0.1:{apache}",
    }
    environment = {"BREAKEVEN_HOST": f"{sockets}/dashboard.sock"}
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, sockets)
        sockets.chmod(0o710)
        if os.getuid() == 0:
            shutil.chown(sockets, group=ACCOUNT)
        stack.enter_context(provider(issuer, f"{address}/oauth2callback", f"{address}/"))
        stack.enter_context(served(data_dir, environment=environment))
        stack.enter_context(apache_of_docs(folder, local, sign_in))
        stack.enter_context(nginx_of_docs(folder, tls, sign_in, local))
        yield Proxied(address, sign_in, sockets / "dashboard.sock", settings, data_dir)


@contextmanager
def provider(port: int, redirect: str, after_sign_out: str) -> Iterator[None]:
    wanted = (HERE / "package-lock.json").read_bytes()
    lock = PROVIDER / "package-lock.json"
    if not lock.exists() or lock.read_bytes() != wanted:
        shutil.rmtree(PROVIDER, ignore_errors=True)
        shutil.copytree(HERE, PROVIDER, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
        subprocess.run(["npm", "ci", "--silent"], cwd=PROVIDER, check=True)
    shutil.copy(HERE / "provider.mjs", PROVIDER)
    with running(["node", "provider.mjs", str(port), SECRET, redirect, after_sign_out], PROVIDER):
        wait_for(f"http://localhost:{port}/.well-known/openid-configuration")
        yield


def of_docs(language: str, replaced: Mapping[str, str]) -> str:
    """The one block of docs/operating.md in a language, with other names and ports."""
    text = (ROOT / "docs/operating.md").read_text()
    (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
    for before, after in replaced.items():
        block = block.replace(before, after)
    return str(block)


@contextmanager
def nginx_of_docs(
    folder: Path, port: int, behind: str, local: Mapping[str, str] | None = None
) -> Iterator[None]:
    """nginx as docs/operating.md configures it, but for names and ports."""
    names = {"/etc/ssl/": f"{folder}/", "bench.example.org": "localhost"}
    (command,) = re.findall(
        r"```sh\n(openssl .*?)```", (ROOT / "docs/operating.md").read_text(), re.DOTALL
    )
    for before, after in names.items():
        command = command.replace(before, after)
    subprocess.run(command, shell=True, check=True, capture_output=True)
    block = of_docs("nginx", {**(local or {}), **names, "listen 443": f"listen {port}",
                              "http://127.0.0.1:8501": behind})  # fmt: skip
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    configuration = folder / "nginx.conf"
    configuration.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; "
        f"error_log {folder}/nginx.log;\n"
        f"events {{}}\nhttp {{ access_log off;\n{temporary}{block}\n}}\n"
    )
    with running(["nginx", "-e", f"{folder}/nginx.log", "-c", str(configuration)], folder):
        wait_for(f"https://localhost:{port}/_stcore/health")
        yield


@contextmanager
def apache_of_docs(folder: Path, local: Mapping[str, str], address: str) -> Iterator[None]:
    """Apache's mod_auth_openidc as docs/operating.md configures it, but for names and ports."""
    loaded = "".join(f"LoadModule {name}_module {MODULES}/mod_{name}.so\n" for name in NEEDED)
    configuration = folder / "apache.conf"
    configuration.write_text(
        f"{loaded}User {ACCOUNT}\nGroup {ACCOUNT}\n"
        f"ServerRoot {folder}\nPidFile {folder}/apache.pid\n"
        f"DefaultRuntimeDir {folder}\nErrorLog {folder}/apache.log\nServerName localhost\n"
        f"{of_docs('apache', local)}"
    )
    program = ["apache2", "-D", "FOREGROUND", "-f", str(configuration)]
    with running(program, folder):
        wait_for(address)
        yield


@contextmanager
def running(program: list[str], folder: Path) -> Iterator[None]:
    process = subprocess.Popen(
        program, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
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
    """Until there is any answer."""
    trusting = ssl._create_unverified_context()

    def answers() -> bool:
        try:
            urllib.request.urlopen(address, timeout=10, context=trusting)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True

    wait_until(answers)
