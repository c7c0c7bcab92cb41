"""The secret link: its token, its file, its addresses and its command."""

import os
import re
import socket
import stat
from typing import Any

import pytest

from breakeven.runner import secret_link
from breakeven.runner.commands.cli import main
from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.settings import FILE_NAME, Serving


def test_the_token_is_made_once_and_only_this_account_reads_its_file(data_dir: DataDir) -> None:
    assert secret_link.read(data_dir) is None
    before = os.umask(0)
    try:
        token = secret_link.ensure(data_dir)
    finally:
        os.umask(before)
    assert stat.S_IMODE(data_dir.token_file.stat().st_mode) == 0o600
    assert secret_link.ensure(data_dir) == secret_link.read(data_dir) == token
    assert [file.name for file in data_dir.path.iterdir()] == ["token"]
    other = secret_link.renew(data_dir)
    assert other != token and secret_link.read(data_dir) == other
    assert stat.S_IMODE(data_dir.token_file.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_token_that_other_accounts_could_read_or_write_is_replaced(
    data_dir: DataDir, mode: int
) -> None:
    token = secret_link.ensure(data_dir)
    data_dir.token_file.chmod(mode)
    assert secret_link.ensure(data_dir) != token
    assert stat.S_IMODE(data_dir.token_file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"x" * 42, b"x" * 44, b"x" * 42 + b"=", b"\xff" * 43, b"y" * 200]
)
def test_what_is_no_token_opens_nothing_and_is_replaced(data_dir: DataDir, content: bytes) -> None:
    data_dir.make()
    data_dir.token_file.write_bytes(content)
    data_dir.token_file.chmod(0o600)
    assert secret_link.read(data_dir) is None
    assert secret_link.ensure(data_dir) == secret_link.read(data_dir)


def test_a_link_or_a_pipe_in_place_of_the_file_is_replaced_and_keeps_nobody_waiting(
    data_dir: DataDir,
) -> None:
    data_dir.make()
    elsewhere = data_dir.path / "elsewhere"
    elsewhere.write_text("z" * 43)
    data_dir.token_file.symlink_to(elsewhere)
    assert secret_link.read(data_dir) is None
    assert secret_link.ensure(data_dir) != "z" * 43 and elsewhere.read_text() == "z" * 43
    data_dir.token_file.unlink()
    os.mkfifo(data_dir.token_file)
    assert secret_link.read(data_dir) is None
    assert secret_link.ensure(data_dir) == secret_link.read(data_dir)


@pytest.mark.parametrize(
    ("serving", "origins"),
    [
        (Serving(), ["http://127.0.0.1:8501"]),
        (Serving(host="localhost", port=9), ["http://127.0.0.1:9"]),
        (Serving(host="10.1.2.3"), ["http://10.1.2.3:8501"]),
        (Serving(host="::1"), ["http://[::1]:8501"]),
        (Serving(host="0.0.0.0"), ["http://machine:8501", "http://127.0.0.1:8501"]),
        (
            Serving(host="0.0.0.0", hostnames=("a.example",)),
            ["http://a.example:8501", "http://127.0.0.1:8501"],
        ),
        (Serving(hostnames=("a.example", "b.example")), ["https://a.example", "https://b.example"]),
    ],
)
def test_the_link_has_each_name_under_which_people_reach_the_dashboard(
    monkeypatch: pytest.MonkeyPatch, serving: Serving, origins: list[str]
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "machine")
    links = secret_link.addresses(serving, "secret")
    assert links == [f"{origin}/?token=secret" for origin in origins]


def test_the_start_names_the_address_and_prints_the_link_only_where_others_are_served() -> None:
    def said(**serving: Any) -> list[str]:
        return secret_link.start_words(Serving(**serving), "secret").splitlines()

    (line,) = said(port=9000)
    assert line.startswith("Breakeven is on http://localhost:9000 (Ctrl-C ends it")
    for others in ({"host": "0.0.0.0"}, {"hostnames": ("a.example",)}):
        assert said(**others)[1].startswith("Whoever opens this secret link may act")
    assert said(host="10.1.2.3")[0].startswith("Breakeven is on http://10.1.2.3:8501 ")
    assert len(secret_link.start_words(Serving(host="0.0.0.0"), None).splitlines()) == 1


def test_the_command_prints_the_link_again_and_renews_it(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*arguments: str) -> str:
        assert main(["token", f"--data-folder={data_dir.path}", *arguments]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        token = re.fullmatch(r"http://127\.0\.0\.1:8501/\?token=([\w-]{43})", line)
        assert token is not None and token[1] == secret_link.read(data_dir)
        return token[1]

    first = printed()
    assert printed() == first
    second = printed("--new")
    assert second != first and printed() == second


def test_the_command_changes_nothing_where_the_settings_cannot_be_read(data_dir: DataDir) -> None:
    token = secret_link.ensure(data_dir)
    (data_dir.path / FILE_NAME).write_text("[team]")
    assert main(["token", f"--data-folder={data_dir.path}", "--new"]) == 2
    assert issubclass(SettingsUnusable, Exception) and secret_link.read(data_dir) == token
