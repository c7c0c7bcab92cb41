"""Backends that are named by path: where the code lies, who allows it, how it is loaded."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks import refused_experiments as checks
from breakeven.runner.checks.allowed_code import CODE_VARIABLE, locate
from breakeven.runner.errors import CodeNotAllowed, InvalidSpec, RunnerError
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.user_code import load_backend
from tests.helpers.in_process import torch_asked_here
from tests.helpers.machine import MACHINE

CODE = """
class Compiler:
    made = 0

    def __init__(self):
        Compiler.made += 1

    def __call__(self, graph, inputs):
        return graph.forward

class NeedsSize:
    def __init__(self, size): ...

def plain(graph, inputs):
    return graph.forward

number = 3
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A package of this test's own that Python finds, with a module `core`; nobody allowed it."""
    name = f"pack_{abs(hash(request.node.name))}"
    folder = tmp_path / "site" / name
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "core.py").write_text(CODE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    return name


def allow(monkeypatch: pytest.MonkeyPatch, *folders: Path) -> None:
    monkeypatch.setenv(CODE_VARIABLE, ":".join(map(str, folders)))


def spec_with(backend: str) -> ExperimentSpec:
    return ExperimentSpec(name="trial", backends=(backend,))


def test_a_module_is_located_without_executing_it_or_its_package(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site" / package
    (folder / "__init__.py").write_text("raise SystemExit('executed')")
    allow(monkeypatch, folder)
    assert locate(f"{package}.core:plain") == (folder / "core.py", "plain")
    checks.check_at_once(spec_with(f"{package}.core:plain"), MACHINE)
    checks.check(spec_with(f"{package}.core:plain"), MACHINE)
    assert package not in sys.modules


def test_a_package_without_a_file_of_its_own_is_passed_through(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, tmp_path)
    inner = tmp_path / "site" / package / "one" / "two"
    inner.mkdir(parents=True)
    (inner / "core.py").write_text(CODE)
    assert locate(f"{package}.one.two.core:plain")[0] == inner / "core.py"
    assert load_backend(f"{package}.one.two.core:plain").__name__ == "plain"


def test_code_of_a_package_runs_only_from_allowed_folders(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site" / package
    with pytest.raises(CodeNotAllowed, match=f"{CODE_VARIABLE}={folder} .now empty"):
        checks.check_user_code(spec_with(f"{package}.core:plain"))
    with pytest.raises(CodeNotAllowed):
        load_backend(f"{package}.core:plain")
    assert package not in sys.modules
    allow(monkeypatch, tmp_path / "site")
    checks.check_user_code(spec_with(f"{package}.core:plain"))


def test_a_package_of_another_environment_is_looked_for_there_and_a_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    there = ("old=/x/python",)
    for backend in ("no_such_package.core:plain", "own.py:plain"):
        with pytest.raises((InvalidSpec, CodeNotAllowed)):
            checks.check_user_code(spec_with(backend))
    checks.check_user_code(replace(spec_with("no_such_package.core:plain"), environments=there))
    with pytest.raises(CodeNotAllowed):
        checks.check_user_code(replace(spec_with("own.py:plain"), environments=there))


def test_an_allowed_module_below_a_package_that_is_not_stays_forbidden(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = tmp_path / "site" / package / "inner"
    inner.mkdir()
    (inner / "__init__.py").write_text(CODE)
    allow(monkeypatch, inner)
    with pytest.raises(CodeNotAllowed, match=rf"{package}/__init__\.py may not run here"):
        locate(f"{package}.inner:plain")


@pytest.mark.parametrize(
    ("backend", "rule"),
    [
        ("no_such_package.core:plain", "needs the package no_such_package, which is not installed"),
        ("{}.nothing:plain", "{} has no module 'nothing'"),
        ("{}.core.deeper:plain", "{}.core has no module 'deeper'"),
        ("{}:plain", "a path reads package.module:attribute"),
    ],
)
def test_a_package_or_module_that_is_missing_is_named_before_anything_starts(
    package: str, backend: str, rule: str
) -> None:
    for machine in (MACHINE, None):
        with pytest.raises(InvalidSpec) as caught:
            checks.check_at_once(spec_with(backend.format(package)), machine)
        assert caught.value.field == "backends"
        assert caught.value.value == backend.format(package)
        assert rule.format(package) in caught.value.rule


def test_a_class_is_instantiated_and_a_function_taken_as_it_is(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, tmp_path)
    compiler = load_backend(f"{package}.core:Compiler")
    assert type(compiler).__name__ == "Compiler" and type(compiler).made == 1  # type: ignore[attr-defined]
    assert load_backend(f"{package}.core:plain").__name__ == "plain"
    own = tmp_path / "mine.py"
    own.write_text(CODE)
    assert load_backend(f"{own}:plain").__name__ == "plain"


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        ("Compilr", "does not define 'Compilr'; did you mean 'Compiler'?"),
        ("zzz", "; it has Compiler, NeedsSize, plain, number"),
        ("number", "int cannot be called, but torch calls a backend for each graph"),
        ("NeedsSize", "failed when it was called: TypeError"),
    ],
)
def test_what_is_no_backend_is_said(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch, attribute: str, said: str
) -> None:
    allow(monkeypatch, tmp_path)
    with pytest.raises(RunnerError, match=said.replace("?", "[?]")):
        load_backend(f"{package}.core:{attribute}")


def test_a_package_that_cannot_be_imported_is_said_with_the_cause(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, tmp_path)
    (tmp_path / "site" / package / "__init__.py").write_text("import no_such_library")
    with pytest.raises(RunnerError, match="cannot be imported: ModuleNotFoundError: No module"):
        load_backend(f"{package}.core:plain")


@pytest.mark.heavy
def test_torchs_check_loads_a_backend_before_any_training_and_the_form_does_not(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(monkeypatch, tmp_path)
    mistyped = spec_with(f"{package}.core:Compilr")
    assert checks.settings_to_check(mistyped) is None
    assert not checks.check_at_once(mistyped, MACHINE)
    checks.check_settings(mistyped)
    right = replace(mistyped, backends=(f"{package}.core:Compiler",))
    with torch_asked_here():
        with pytest.raises(InvalidSpec, match="does not define 'Compilr'; did you mean 'Compiler'"):
            checks.check_settings(mistyped, execute=True)
        checks.check_settings(right, execute=True)
