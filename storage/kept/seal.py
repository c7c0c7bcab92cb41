"""A mark by which a kept result shows that this user's own dashboard wrote it, and wrote just this.

Data folders are copied, and their databases with them. Rows of a database can be read from the run
folders again; a kept result nobody reads again, so one that somebody else wrote is not believed.
"""

import hmac
import os
import secrets
from contextlib import suppress
from functools import cache
from pathlib import Path

KEY_BYTES = 32


def seal(*parts: str) -> str:
    """Of these texts in this order; nobody without the key can make one."""
    # Lengths first: of no two lists of texts are these bytes the same.
    told = b"".join(f"{len(part.encode())}:".encode() + part.encode() for part in parts)
    return hmac.new(_key(key_file()), told, "sha256").hexdigest()


def is_sealed(mark: str, *parts: str) -> bool:
    return hmac.compare_digest(mark.encode(), seal(*parts).encode())


def key_file() -> Path:
    """Outside of every data folder, with what else a user's programs may lose without harm."""
    told = os.environ.get("XDG_CACHE_HOME", "")
    folder = Path(told) if os.path.isabs(told) else Path.home() / ".cache"
    return folder / "breakeven" / "seal.key"


@cache
def _key(file: Path) -> bytes:
    """The key of this user, made when it is first asked for; where none can be kept, one for this
    process alone."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(made, "wb") as opened:
                opened.write(secrets.token_bytes(KEY_BYTES))
        found = file.read_bytes()
        if len(found) == KEY_BYTES:
            return found
    return secrets.token_bytes(KEY_BYTES)
