"""The secret link: who opens it acts from elsewhere, as the account that runs the dashboard does.

Its token is in a file of the data folder that only this account reads. A browser exchanges the
token for a cookie (`views/access/secret_link_cookie.py`). A new token ends all cookies of the
former one.
"""

import hashlib
import hmac
import os
import re
import secrets
import socket
import stat
from contextlib import suppress

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import Serving

PARAMETER = "token"
"""The name of the token in the link's query."""
TOKEN = re.compile(r"[\w-]{43}", re.ASCII)
"""32 random bytes in URL-safe base64."""
EVERYWHERE = ("0.0.0.0", "::")


def read(data_dir: DataDir) -> str | None:
    """The token; None without a valid one."""
    try:
        descriptor = os.open(data_dir.token_file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as opened:
            text = opened.read(100).decode().strip()
    except (OSError, UnicodeDecodeError):
        return None
    return text if TOKEN.fullmatch(text) else None


def ensure(data_dir: DataDir) -> str:
    """The token; makes one if there is none, or if other accounts could read or write it. Raises
    `OSError`."""
    token = read(data_dir)
    with suppress(OSError):
        status = os.lstat(data_dir.token_file)
        is_open = status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if token is not None and not is_open and status.st_uid == os.getuid():
            return token
    return renew(data_dir)


def renew(data_dir: DataDir) -> str:
    """Replaces the token; raises `OSError`."""
    data_dir.make()
    token = secrets.token_urlsafe(32)
    draft = data_dir.token_file.with_name(f".token.{secrets.token_hex(4)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as opened:
            opened.write(f"{token}\n")
        os.replace(draft, data_dir.token_file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return token


def is_same(token: str, given: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(token.encode(), given.encode(errors="surrogateescape"))


def cookie_name(token: str) -> str:
    """Browsers send the cookies of a host to all of its ports, so each dashboard has a name of its
    own, also where containers all use the same port inside."""
    return f"breakeven-{hashlib.sha256(token.encode()).hexdigest()[:12]}"


def start_words(serving: Serving, token: str | None) -> str:
    """What the start of the dashboard prints: its address, and the secret link where others are
    served. Without a token there is no link."""
    name = "localhost" if serving.host in (*EVERYWHERE, "127.0.0.1") else serving.host
    name = f"[{name}]" if ":" in name else name
    lines = [
        f"Breakeven is on http://{name}:{serving.port} (Ctrl-C ends it; trainings go on). "
        "`breakeven help` lists its commands."
    ]
    if token is not None and (serving.hostnames or not _is_local(serving.host)):
        links = " or ".join(addresses(serving, token))
        lines.append(f"Whoever opens this secret link may act, also from elsewhere: {links}")
    return "\n".join(lines)


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


def addresses(serving: Serving, token: str) -> list[str]:
    """The link, by each name under which the settings let people reach the dashboard. A name where
    only this machine is listened to is a proxy's, which encrypts."""
    host, port = serving.host, serving.port
    if _is_local(host) and serving.hostnames:
        origins = [f"https://{name}" for name in serving.hostnames]
    else:
        names = [*(serving.hostnames or [socket.gethostname()]), "127.0.0.1"]
        # Not `localhost`, which another account of this machine could answer as `::1`.
        names = names if host in EVERYWHERE else ["127.0.0.1" if host == "localhost" else host]
        origins = [
            f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}" for name in names
        ]
    return [f"{origin}/?{PARAMETER}={token}" for origin in origins]
