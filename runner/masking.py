"""Secrets made unreadable, in this one place, for whatever is kept, shown or handed on.

A secret is the value of an environment variable whose name says so (`HF_TOKEN`, `WANDB_API_KEY`,
...), a password in an address, or what has the form of a well-known token.
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
"""A shorter value, such as `1`, would be found everywhere and is no secret worth the name."""
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
    "eyj": r"(?<![\w-])eyj[\w-]{8,}+\.eyj[\w-]{8,}+\.[\w-]+",
    "private key": r"""-----begin [a-z ]*private key-----[^"]*?"""
    r"""(?:-----end [a-z ]*private key-----|(?=")|\Z)""",
}
"""What looks like a secret, whatever its case, by a piece of each that is looked for first, which
takes a thousandth of the time. Texts are foreign: none may make a pattern look at it over and
over."""
PATTERNS = {piece: re.compile(form, re.IGNORECASE) for piece, form in FORMS.items()}
HOMES = re.compile(r"/(?:home|Users)/[^/\s\"'\\:]+")


def mask(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text without secrets; `environment` is that of this process by default."""
    return masker(environment)(text)


def masker(environment: Mapping[str, str] | None = None) -> Callable[[str], str]:
    """The same for many texts: what is secret is looked up once."""
    known = _known(_secrets(os.environ if environment is None else environment))

    def masked(text: str) -> str:
        if known is not None:
            text = known.sub(MASKED, text)
        small = text.lower()
        for piece, pattern in PATTERNS.items():
            if piece in small:
                text = pattern.sub(MASKED, text)
        return text

    return masked


def has_secret(text: str, environment: Mapping[str, str] | None = None) -> bool:
    """Whether there is anything to mask in a text."""
    return mask(text, environment) != text


def mask_private(text: str) -> str:
    """The text without secrets and people's home folders, fit for strangers."""
    text = mask(text)
    home = str(Path.home())
    if len(home) > 1:
        text = re.sub(rf"{re.escape(home)}(?=[/\s\"'\\:,;)]|$)", "~", text)
    return HOMES.sub("~", text)


def is_secret_name(name: str) -> bool:
    """Whether a variable of that name holds a secret."""
    return SECRET_NAME.search(name) is not None


def _secrets(environment: Mapping[str, str]) -> frozenset[str]:
    found: set[str] = set()
    for name, value in environment.items():
        if is_secret_name(name):
            found |= {value.strip(), *(_pieces(value) if name.endswith("_NOTIFY") else ())}
    return frozenset(one for one in found if len(one) >= MIN_SECRET_CHARACTERS)


def _pieces(addresses: str) -> Iterable[str]:
    """Of addresses of Apprise all that may be a secret by itself: names, passwords, parts of the
    path, and the host where it is no name of one, as in `slack://TOKEN/TOKEN`."""
    for address in addresses.split():
        parts = urlsplit(f"//{address.partition('://')[2]}")
        user, _, host = parts.netloc.rpartition("@")
        is_host = "." in host or host.startswith("localhost")
        secret = (user, "" if is_host else host, parts.path, parts.query, parts.fragment)
        for piece in re.split(r"[/:?&=,]", "/".join(secret)):
            yield from (address, piece, unquote(piece))


@lru_cache(maxsize=16)
def _known(secrets: frozenset[str]) -> re.Pattern[str] | None:
    """Finds each secret, also as JSON and Python write it. The longest first: one may begin
    another."""
    written: set[str] = set()
    for secret in secrets:
        written |= {secret, *_lines(secret), json.dumps(secret)[1:-1], repr(secret)[1:-1],
                    json.dumps(secret, ensure_ascii=False)[1:-1]}  # fmt: skip
    ordered = sorted(written, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, ordered))) if ordered else None


def _lines(secret: str) -> Iterable[str]:
    """What of a secret of several lines would be recognized by itself."""
    lines = [line.strip() for line in secret.splitlines()]
    return [line for line in lines if len(line) >= 2 * MIN_SECRET_CHARACTERS]
