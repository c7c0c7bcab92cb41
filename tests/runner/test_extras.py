"""What is said where a package is not installed, and what the package asks for."""

import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import breakeven
from breakeven import __main__ as command
from breakeven.runner import extras
from breakeven.runner.extras import BASE, EXTRAS, missing_words
from breakeven.runner.project import PROJECT_ROOT

PROJECT = tomllib.loads((PROJECT_ROOT / "pyproject.toml").read_text())["project"]


def test_only_a_missing_package_that_a_part_of_breakeven_names_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert missing_words("duckdb") is None
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    assert missing_words("duckdb") == (
        "needs duckdb, which is not installed here: pip install breakeven"
    )
    assert missing_words("nobody_made_this") is None


def test_a_command_without_its_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking(monkeypatch, "streamlit.web")
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["breakeven", "export", "x"])
    assert command.main() == command.BAD_INPUT
    assert capsys.readouterr().err == (
        "`breakeven export` needs streamlit, which is not installed here: "
        "pip install 'breakeven[ui]'.\n"
    )


def test_an_error_in_other_imports_is_no_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking(monkeypatch, "breakeven.serve")
    with pytest.raises(ModuleNotFoundError):
        command.main()


def lacking(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    """Any command fails for the lack of a module."""

    def fail(arguments: list[str]) -> int:
        raise ModuleNotFoundError(name=module)

    monkeypatch.setattr(command, "_run", fail)


@pytest.mark.parametrize("extra", [None, "ui", "hf"])
def test_each_module_comes_with_a_package_that_the_project_asks_for(extra: str | None) -> None:
    texts = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    names = {canonicalize_name(Requirement(text).name) for text in texts}
    # Streamlit brings starlette, which serves its pages.
    came_with = packages_distributions() | {"starlette": ["streamlit"]}
    for module in EXTRAS[extra] if extra else BASE:
        assert names & {canonicalize_name(name) for name in came_with[module]}, module


def test_the_version_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["breakeven", "--version"])
    assert command.main() == 0
    assert capsys.readouterr().out == f"breakeven {breakeven.__version__}\n"
