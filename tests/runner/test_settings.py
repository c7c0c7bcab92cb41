"""`breakeven.toml` of a data folder, and the variables that override it."""

import re
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

from breakeven.runner.errors import SettingsUnusable
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.meetings import own_address
from breakeven.runner.settings import (
    FILE_NAME,
    Prices,
    Serving,
    Settings,
    TeamStoreSettings,
    read_settings,
)

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/operating.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / FILE_NAME


def refusal(file: Path, **environment: str) -> str:
    with pytest.raises(SettingsUnusable) as refused:
        read_settings(file.parent, environment)
    return str(refused.value).removeprefix(f"{file}: ")


def test_without_a_file_the_defaults_count(tmp_path: Path) -> None:
    assert read_settings(tmp_path, {}) == Settings()
    assert Settings().serving == Serving(host="127.0.0.1", port=8501)


def test_the_document_shows_every_key_as_the_file_takes_it(file: Path) -> None:
    example = DOCUMENT.read_text().partition("```toml\n")[2].partition("```")[0]
    file.write_text(example)
    settings = read_settings(file.parent, {})
    assert settings.serving.hostnames == ("bench.example.org",)
    assert settings.store.data == "/shared/breakeven"
    assert settings.addresses == {"node1": "10.0.0.1"}
    shown = tomllib.loads(example)
    for name, section in (("serving", Serving), ("store", TeamStoreSettings), ("prices", Prices)):
        assert list(shown[name]) == [field.name for field in fields(section)]
    assert list(shown) == [field.name for field in fields(Settings)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[servings]",
            "servings = {}: is not a field of Settings; its fields are serving, store, "
            "prices, addresses; did you mean 'serving'?",
        ),
        ("[prices]\nkwh = '0.3'", "prices.kwh = '0.3': must be a number"),
        ("[prices]\nkwh = -1", "prices.kwh = -1.0: must be at least 0"),
        ("[serving]\nport = true", "serving.port = True: must be a whole number"),
        (
            "[serving]\nport = 65536",
            "serving.port = 65536: must be at most 65,535: TCP has no more ports",
        ),
        ("[serving]\nfiles = [1]", "serving.files = (1,): must be a list of text"),
        ("[addresses]\nnode1 = 7", "addresses = {'node1': 7}: must be named values, each text"),
        ("store = 'here'", "store = 'here': must be an object of named fields"),
    ],
)
def test_an_error_names_the_key_the_value_and_the_rule(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    assert refusal(file) == said


def test_a_file_that_is_no_toml_or_open_to_others_is_refused(file: Path) -> None:
    file.write_text("[serving")
    assert "cannot be read" in refusal(file)
    file.write_text("")
    file.chmod(0o666)
    assert "can be written by other accounts" in refusal(file)


def test_a_variable_overrides_the_file_and_is_checked_as_the_file_is(file: Path) -> None:
    file.write_text("[serving]\nport = 9000\nfiles = ['/data']")
    given = {"BREAKEVEN_HOST": "0.0.0.0", "BREAKEVEN_PORT": "9001"}
    serving = read_settings(file.parent, given).serving
    assert serving == Serving(host="0.0.0.0", port=9001, files=("/data",))
    assert read_settings(file.parent, {"BREAKEVEN_HOST": ""}).serving.host == "127.0.0.1"
    file.unlink()
    assert refusal(file, BREAKEVEN_PORT="x") == "BREAKEVEN_PORT = 'x': must be a whole number"


def test_a_machine_is_found_under_the_address_of_its_name(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "node1")
    assert own_address(DataDir(file.parent)) == "node1"
    file.write_text("[addresses]\nnode1 = '10.0.0.1'")
    assert own_address(DataDir(file.parent)) == "10.0.0.1"


def test_environment_variables_are_few_and_those_for_people_are_documented() -> None:
    sources = [
        file for part in ("runner", "storage", "views") for file in (ROOT / part).rglob("*.py")
    ]
    constants = r'^\w+(?:, \w+)* = ((?:"BREAKEVEN_\w+"(?:, )?)+)$'
    variables = {
        name
        for file in [*sources, ROOT / "serve.py"]
        for line in re.findall(constants, file.read_text(), re.MULTILINE)
        for name in re.findall(r"BREAKEVEN_\w+", line)
    }
    assert 8 < len(variables) <= 13
    documented = set(re.findall(r"`(BREAKEVEN_\w+)`", DOCUMENT.read_text()))
    assert documented < variables
    assert variables - documented == {
        "BREAKEVEN_RUN_FOLDER",
        "BREAKEVEN_TURN_PIPES",
        "BREAKEVEN_DEVICES",
        "BREAKEVEN_WITHHELD",
        "BREAKEVEN_HUB_UNREACHABLE",
        "BREAKEVEN_PYTHON",
    }, "which a process hands to those that it starts"
