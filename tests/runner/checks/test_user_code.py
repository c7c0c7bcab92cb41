"""Python code of one's own, backends by path and scripts: who allows it, how it is loaded, what is
said of it before anything starts."""

import hashlib
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks import experiment as checks
from breakeven.runner.checks.user_code import CODE_VARIABLE, check_script, locate
from breakeven.runner.errors import CodeNotAllowed, InvalidSpec, RunnerError, WorkloadError
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.runner.worker.user_code import call, copy_sources, load_backend, load_object
from tests.helpers.in_process import torch_asked_here
from tests.helpers.machine import MACHINE


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose Python files may run, beside others whose may not."""
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv(CODE_VARIABLE, str(folder))
    return folder


def write(folder: Path, name: str, code: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(code)
    return folder / name


def test_files_of_listed_folders_are_located_from_the_working_folder_and_home_too(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, deeper = write(folder, "model.py", ""), write(folder / "parts", "model.py", "")
    assert locate(f"{file}:make") == (file, "make")
    assert locate(f"{deeper}:make") == (deeper, "make")
    monkeypatch.chdir(folder)
    assert locate("model.py:make") == (file, "make")
    monkeypatch.setenv("HOME", str(folder))
    assert locate("~/model.py:make") == (file, "make")
    other = write(tmp_path / "other", "model.py", "")
    monkeypatch.setenv(CODE_VARIABLE, os.pathsep.join([str(folder), str(other.parent)]))
    assert locate(f"{other}:make") == (other, "make")
    monkeypatch.delenv(CODE_VARIABLE)
    with pytest.raises(CodeNotAllowed, match="now empty"):
        locate(f"{file}:make")


def test_a_file_elsewhere_may_not_run_and_the_sentence_says_how_to_allow_it(
    tmp_path: Path, folder: Path
) -> None:
    stranger = write(tmp_path / "stranger", "model.py", "raise SystemExit")
    with pytest.raises(CodeNotAllowed):
        load_object(f"{stranger}:make")
    with pytest.raises(CodeNotAllowed) as caught:
        locate(f"{stranger}:make")
    assert isinstance(caught.value, RunnerError)
    message = str(caught.value)
    assert f"{stranger} may not run here" in message
    assert f"{CODE_VARIABLE}={stranger.parent} (now {folder})" in message


def test_a_way_out_of_the_folder_is_seen_through(tmp_path: Path, folder: Path) -> None:
    stranger = write(tmp_path / "stranger", "model.py", "")
    with pytest.raises(CodeNotAllowed):
        locate(f"{folder}/../stranger/model.py:make")
    (folder / "link.py").symlink_to(stranger)
    with pytest.raises(CodeNotAllowed):
        locate(f"{folder}/link.py:make")


def test_a_name_is_loaded_and_the_file_runs_once(folder: Path) -> None:
    write(folder, "model.py", "made = object()\ndef make():\n    return made\n")
    source = f"{folder}/model.py"
    assert load_object(f"{source}:made") is call(f"{source}:make")


def test_files_of_one_name_do_not_replace_each_other(folder: Path) -> None:
    for name in ("a", "b"):
        write(folder / name, "model.py", f"name = {name!r}")
    names = [load_object(f"{folder}/{name}/model.py:name") for name in ("a", "b", "a")]
    assert names == ["a", "b", "a"]


def test_a_file_may_import_its_neighbour_but_not_replace_a_library(folder: Path) -> None:
    write(folder, "neighbour_of_mine.py", "width = 3")
    write(folder, "sklearn.py", "raise AssertionError('not the library')")
    code = "from neighbour_of_mine import width\nimport sklearn\nversion = sklearn.__version__\n"
    write(folder, "model.py", code)
    assert load_object(f"{folder}/model.py:width") == 3


@pytest.mark.parametrize(
    ("code", "name", "message"),
    [
        ("def make_model(): ...", "make_modle", "does not define 'make_modle'; did you mean 'mak"),
        ("import absent_library", "make", "model.py cannot be imported: ModuleNotFoundError"),
        ("def make(:", "make", "model.py cannot be imported: SyntaxError"),
        ("def make(): return 1 / 0", "make", "make' failed when it was called: ZeroDivisionError"),
        ("def make(size): ...", "make", "TypeError: make.. missing 1 required"),
        ("make = 3", "make", "int is not a function"),
    ],
)
def test_a_failure_names_file_name_and_cause(
    folder: Path, code: str, name: str, message: str
) -> None:
    file = write(folder, "model.py", code)
    with pytest.raises(WorkloadError, match=message) as caught:
        call(f"{file}:{name}")
    assert f"'{file}:{name}'" in str(caught.value)


def test_a_file_that_is_missing_is_named_and_one_that_failed_can_be_mended_and_loaded(
    folder: Path,
) -> None:
    with pytest.raises(WorkloadError, match=r"absent\.py cannot be read: No such file"):
        load_object(f"{folder}/absent.py:make")
    file = write(folder, "model.py", "made = 1 / 0")
    with pytest.raises(WorkloadError):
        load_object(f"{file}:made")
    write(folder, "model.py", "made = 1")
    assert load_object(f"{file}:made") == 1


def test_every_file_is_copied_once_with_its_hash(tmp_path: Path, folder: Path) -> None:
    first = write(folder / "a", "model.py", "a = 1")
    second = write(folder / "b", "model.py", "b = 1")
    copies = tmp_path / "run" / "source"
    sources = [f"{first}:a", f"{first}:make", f"{second}:b"]
    hashes = [hashlib.sha256(text.encode()).hexdigest() for text in ("a = 1", "b = 1")]
    assert copy_sources(sources, copies) == [
        (sources[0], "model.py", hashes[0]),
        (sources[2], f"model-{hashes[1][:8]}.py", hashes[1]),
    ]
    assert (copies / "model.py").read_text() == "a = 1"
    assert (copies / f"model-{hashes[1][:8]}.py").read_text() == "b = 1"
    assert copy_sources([], tmp_path / "source") == [] and not (tmp_path / "source").exists()


# Backends that are named by path


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


def asked(backend: str) -> ExperimentSpec:
    return ExperimentSpec(name="trial", backends=(backend,))


def test_a_module_is_located_without_executing_it_or_its_package(
    tmp_path: Path, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "site" / package
    (folder / "__init__.py").write_text("raise SystemExit('executed')")
    allow(monkeypatch, folder)
    assert locate(f"{package}.core:plain") == (folder / "core.py", "plain")
    checks.check_at_once(asked(f"{package}.core:plain"), MACHINE)
    checks.check(asked(f"{package}.core:plain"), MACHINE)
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
        checks.check_user_code(asked(f"{package}.core:plain"))
    with pytest.raises(CodeNotAllowed):
        load_backend(f"{package}.core:plain")
    assert package not in sys.modules
    allow(monkeypatch, tmp_path / "site")
    checks.check_user_code(asked(f"{package}.core:plain"))


def test_a_package_of_another_environment_is_looked_for_there_and_a_file_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CODE_VARIABLE, raising=False)
    there = ("old=/x/python",)
    for backend in ("no_such_package.core:plain", "own.py:plain"):
        with pytest.raises((InvalidSpec, CodeNotAllowed)):
            checks.check_user_code(asked(backend))
    checks.check_user_code(replace(asked("no_such_package.core:plain"), environments=there))
    with pytest.raises(CodeNotAllowed):
        checks.check_user_code(replace(asked("own.py:plain"), environments=there))


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
            checks.check_at_once(asked(backend.format(package)), machine)
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
    mistyped = asked(f"{package}.core:Compilr")
    assert checks.settings_of(mistyped) is None
    assert not checks.check_at_once(mistyped, MACHINE)
    checks.check_settings(mistyped)
    right = replace(mistyped, backends=(f"{package}.core:Compiler",))
    with torch_asked_here():
        with pytest.raises(InvalidSpec, match="does not define 'Compilr'; did you mean 'Compiler'"):
            checks.check_settings(mistyped, execute=True)
        checks.check_settings(right, execute=True)


# Scripts


def script(file: Path, **changes: object) -> ExperimentSpec:
    return ExperimentSpec(name="mine", task="script", model=ModelSpec(source=f"script:{file}"),
                          data=DataSpec(source="script"),
                          script=ScriptSpec(**changes))  # type: ignore[arg-type]  # fmt: skip


def test_a_script_that_says_where_steps_end_may_start(folder: Path) -> None:
    file = write(folder, "train.py", "import breakeven\n")
    check_script(script(file))
    file.write_text("from transformers import Trainer\n")
    check_script(script(file))
    # A file beside it may say it, too.
    file.write_text("from loop import train\ntrain()\n")
    (folder / "loop.py").write_text("import breakeven\n")
    check_script(script(file))


def test_what_is_no_python_is_said_with_its_line(folder: Path) -> None:
    file = write(folder, "train.py", "import breakeven\n\ndef broken(:\n")
    with pytest.raises(InvalidSpec, match="not valid Python: line 3"):
        check_script(script(file))
    file.write_bytes(b"\x00\xff")
    with pytest.raises(InvalidSpec, match=r"train\.py"):
        check_script(script(file))


def test_a_script_that_nowhere_ends_a_step_is_told_how(folder: Path) -> None:
    file = write(folder, "train.py", "import torch\nfor _ in range(3): pass\n")
    with pytest.raises(InvalidSpec, match=r"breakeven\.step\(loss\)"):
        check_script(script(file))


def test_a_module_that_would_be_taken_for_ours_is_named(folder: Path) -> None:
    file = write(folder, "train.py", "import breakeven\n")
    (folder / "runner").mkdir()
    check_script(script(file))
    (folder / "breakeven").mkdir()
    with pytest.raises(InvalidSpec, match="your module 'breakeven'"):
        check_script(script(file))


def test_a_script_and_its_folder_must_be_there_and_allowed(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="there is no file"):
        check_script(script(folder / "missing.py"))
    other = write(tmp_path, "other.py", "import breakeven\n")
    with pytest.raises(CodeNotAllowed):
        check_script(script(other))
    mine = write(folder, "train.py", "import breakeven\n")
    with pytest.raises(CodeNotAllowed):  # all of it would be copied to where its pages lie
        check_script(script(mine, folder=str(tmp_path)))
