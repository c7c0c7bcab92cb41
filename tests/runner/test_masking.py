"""Secrets are masked wherever they stand, and nothing else is."""

import json
import signal

import pytest

from breakeven.runner.masking import MASKED, has_secret, mask

ENVIRONMENT = {
    "HF_TOKEN": "plain-words-as-a-token",
    "WANDB_API_KEY": 'quo"ted\\key-1234',
    "TOKENIZERS_PARALLELISM": "false-and-long-enough",
    "DB_PASSWORD": "short",
    "PATH": "/usr/bin:/bin/and/more",
}


def masked(text: str) -> str:
    return mask(text, ENVIRONMENT)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("it is plain-words-as-a-token.", "it is [masked]."),
        (json.dumps({"key": ENVIRONMENT["WANDB_API_KEY"]}), '{"key": "[masked]"}'),
        (repr(ENVIRONMENT["WANDB_API_KEY"]), "'[masked]'"),
        ("https://jane:pa55@host/x?y=1", "https://[masked]@host/x?y=1"),
        ("https://:pa55@host", "https://[masked]@host"),
        ("https://0123456789abcdef0123@host", "https://[masked]@host"),
        ("ssh://git@host/path", "ssh://git@host/path"),
        ("https://h/x?a=1&token=abc&b=2", "https://h/x?a=1&[masked]&b=2"),
        ("Authorization: Bearer abcdefgh1234", "Authorization: Bearer [masked]"),
        ("hf_abcdefghijklmnopqrstuvwx", "[masked]"),
        ("ghp_abcdefghijklmnopqrstuvwxyz012345", "[masked]"),
        ("AKIAABCDEFGHIJKLMNOP and sk-abcdefghijklmnopqrstuv", "[masked] and [masked]"),
        ("a -----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY----- b", "a [masked] b"),
    ],
)
def test_a_secret_is_masked(text: str, expected: str) -> None:
    assert masked(text) == expected
    assert has_secret(text, ENVIRONMENT) == (text != expected)


@pytest.mark.parametrize(
    "text",
    [
        "short",
        "false-and-long-enough",
        "/usr/bin:/bin/and/more",
        "loss 0.25 at 12:30:01",
        "https://host:8501/page?experiment=20261121-093015-000000-aaaa",
        "hf_hub",
        "task-list-of-it",
        '{"v": 1, "kind": "step", "seq": 12, "loss": 1.5e-05}',
        "sk-learn",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert masked(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mail of bench-mail to ada@example.org failed", "mail of [masked] to [masked] failed"),
        ("no POST to /services/T1JJ3T3L2/A1BRTD4JD", "no POST to /[masked]/[masked]/[masked]"),
        ("the password is p@ssw0rd%", "the password is [masked]"),
        (
            "smtp.example.org, localhost and example.org",
            "smtp.example.org, localhost and example.org",
        ),
    ],
)
def test_of_addresses_for_notifications_all_is_masked_that_may_be_secret(
    text: str, expected: str
) -> None:
    addresses = (
        "mailtos://bench-mail:p%40ssw0rd%25@smtp.example.org:587?to=ada@example.org "
        "slack://T1JJ3T3L2/A1BRTD4JD json://localhost:8080/services/abc"
    )
    assert mask(text, {"BREAKEVEN_NOTIFY": addresses}) == expected
    assert mask(addresses, {"BREAKEVEN_NOTIFY": addresses}) == MASKED


def test_a_secret_of_several_lines_is_masked_line_by_line() -> None:
    environment = {"SIGNING_SECRET": "first-line-of-a-secret\nsecond-line-of-a-secret"}
    assert mask("x second-line-of-a-secret y", environment) == "x [masked] y"
    assert mask(f"<{environment['SIGNING_SECRET']}>", environment) == "<[masked]>"


PUMPS = (
    "eyj-",
    "eyjaaaaaaaa-",
    "eyjaaaaaaaa.eyj-",
    "://a:",
    "://:",
    "bearer ",
    "?token=a",
    "-----begin private key-----",
)


@pytest.mark.parametrize("pump", PUMPS)
def test_a_long_line_that_almost_is_a_token_is_looked_at_once(pump: str) -> None:
    """A line of a megabyte took minutes, in which a supervisor looked after nothing."""
    text = pump * (2**20 // len(pump))
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, 60)  # seconds of this process, however busy others are
    try:
        mask(text, {})
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    token = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.c2lnbmF0dXJl"
    assert mask(f"{pump * 10} {token}", {}).endswith(MASKED)
