"""Masks secrets in every text that is stored, shown or sent.

A secret is the value of an environment variable with a name such as `HF_TOKEN` or `WANDB_API_KEY`,
a password in a URL, or a text in the format of a well-known token.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

MASKED = "[masked]"
MIN_SECRET_CHARACTERS = 8
"""A shorter value, such as `1`, occurs everywhere and is not masked."""
SECRET_NAME = re.compile(
    r"TOKEN(?!IZ)|SECRET|PASSW|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|CREDENTIAL|COOKIE|WEBHOOK|_DSN$|_NOTIFY$",
    re.IGNORECASE,
)
FORMS = {
    "://": r"""(?<=://)[^\s/@:"'\\]*:[^\s/@"'\\]+(?=@)|(?<=://)[^\s/@:"'\\]{16,}(?=@)""",
    "=": r"""(?<=[?&])(?:access_token|token|api_?key|password|secret|sig|signature)=[^\s&"'\\]+""",
    "bearer ": r"(?<=bearer )[\w.~+/=-]{8,}",
    "basic ": r"(?<=basic )[\w+/=]{8,}",
    "hf_": r"\bhf_[a-z0-9]{16,}",
    "gh": r"\bgh[opusr]_[a-z0-9]{20,}|\bgithub_pat_\w{20,}",
    "glpat-": r"\bglpat-[\w-]{16,}",
    "xox": r"\bxox[abprs]-[\w-]{10,}",
    "sk-": r"\bsk-(?:proj-|ant-)?\w{20,}",
    "akia": r"\bakia[0-9a-z]{16}\b",
    "eyj": r"(?<![\w-])eyj[\w-]{8,}\.eyj[\w-]{8,}\.[\w-]+",
    "private key": r"""-----begin [a-z ]*private key-----[^"]*?"""
    r"""(?:-----end [a-z ]*private key-----|(?=")|\Z)""",
}
"""Case-insensitive formats of secrets. Each key is part of every match; a search for the key takes
a thousandth of the time. Texts are untrusted, so patterns must not backtrack repeatedly."""
PATTERNS = {piece: re.compile(form, re.IGNORECASE) for piece, form in FORMS.items()}
HOMES = re.compile(r"/(?:home|Users)/[^/\s\"'\\:]+")


def mask(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Masks the secrets of a text; `environment` defaults to that of this process."""
    return masker(environment)(text)


def masker(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """Returns `mask` for many texts; collects the secrets once."""
    known = _known(_secrets(os.environ if environment is None else environment))

    def masked(text: str) -> str:
        if known is not None:
            text = known.sub(MASKED, text)
        lower = text.lower()
        for piece, pattern in PATTERNS.items():
            if piece in lower:
                text = pattern.sub(MASKED, text)
        return text

    return masked


def has_secret(text: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether a text contains a secret."""
    return mask(text, environment) != text


def mask_private(text: str) -> str:
    """Masks secrets and home folders of a text, so that it may be published."""
    text = mask(text)
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/\s\"'\\:,;)]|$)", "~", text)
    return HOMES.sub("~", text)


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return SECRET_NAME.search(name) is not None


def _secrets(environment: Mapping[str, str]) -> frozenset[str]:
    secrets: set[str] = set()
    for name, value in environment.items():
        if is_secret_name(name):
            secrets |= {value.strip(), *(_pieces(value) if name.endswith("_NOTIFY") else ())}
    return frozenset(text for text in secrets if len(text) >= MIN_SECRET_CHARACTERS)


def _pieces(addresses: str) -> Iterable[str]:
    """Parts of Apprise addresses that may be secrets: user names, passwords, parts of the path, and
    the host if it is no host name, as in `slack://TOKEN/TOKEN`."""
    for address in addresses.split():
        parts = urlsplit(f"//{address.partition('://')[2]}")
        user, _, host = parts.netloc.rpartition("@")
        is_host = "." in host or host.startswith("localhost")
        secret = (user, "" if is_host else host, parts.path, parts.query, parts.fragment)
        for piece in re.split(r"[/:?&=,]", "/".join(secret)):
            yield from (address, piece, unquote(piece))


@lru_cache(maxsize=16)
def _known(secrets: frozenset[str]) -> re.Pattern[str] | None:
    """A pattern of all secrets, also as escaped in JSON and Python. Longer secrets come first,
    because a secret may be a prefix of another one."""
    written: set[str] = set()
    for secret in secrets:
        written |= {
            secret,
            *_lines(secret),
            json.dumps(secret)[1:-1],
            repr(secret)[1:-1],
            json.dumps(secret, ensure_ascii=False)[1:-1],
        }
    ordered = sorted(written, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _lines(secret: str) -> Iterable[str]:
    """The lines of a secret with several lines that are long enough to be masked alone."""
    lines = [line.strip() for line in secret.splitlines()]
    return [line for line in lines if len(line) >= 2 * MIN_SECRET_CHARACTERS]
