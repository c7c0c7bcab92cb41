"""Python files and scripts of users: who allows them, how they load, what a run keeps of them."""

import hashlib
import os
from pathlib import Path

import pytest

from breakeven.runner.checks.allowed_code import (
    CODE_VARIABLE,
    check_script,
    locate,
    package_of,
)
from breakeven.runner.errors import CodeNotAllowed, InvalidSpec, RunnerError, WorkloadError
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.runner.worker.user_code import call, copy_sources, load_object


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
    write(folder, "threadpoolctl.py", "raise AssertionError('not the library')")
    code = "from neighbour_of_mine import width\nfrom threadpoolctl import threadpool_info\n"
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


def script(file: Path, **changes: object) -> ExperimentSpec:
    return ExperimentSpec(
        name="mine",
        task="script",
        model=ModelSpec(source=f"script:{file}"),
        data=DataSpec(source="script"),
        script=ScriptSpec(**changes),
    )  # type: ignore[arg-type]


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


def test_variables_that_could_make_a_run_execute_other_code_need_permission(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(folder, "train.py", "import breakeven\n")
    monkeypatch.delenv("BREAKEVEN_PASS", raising=False)
    harmless = ("WANDB_MODE=offline", f"PYTHONPATH={folder}/a:{folder}", "FSDP_VERSION=2")
    check_script(script(file, variables=harmless))
    for variable in ("LD_PRELOAD=/tmp/evil.so", f"PYTHONPATH={folder}:{tmp_path}", "CC=evil"):
        with pytest.raises(CodeNotAllowed):
            check_script(script(file, variables=(variable,)))
    monkeypatch.setenv("BREAKEVEN_PASS", "MY_ROOT,LD_PRELOAD")
    check_script(script(file, variables=("LD_PRELOAD=/usr/lib/libjemalloc.so", "MY_ROOT=/data")))
    for name in ("BREAKEVEN_CODE", "TORCHINDUCTOR_CACHE_DIR"):
        with pytest.raises(InvalidSpec, match=f"leave {name} out"):
            script(file, variables=(f"{name}=/",))


@pytest.mark.parametrize(
    ("path", "module", "package"),
    [
        ("train.py", "", "."),
        ("train.py", "train", "."),
        ("a/b/train.py", "", "a/b"),
        ("a/b/train.py", "a.b.train", "a"),
        ("a/b/__main__.py", "a.b", "a"),
        ("a/b/__main__.py", "a.b.__main__", "a"),
        ("a/cli.py", "tool=a.cli:main", "a"),
        ("a/__init__.py", "tool=a:main", "a"),
    ],
)
def test_a_module_belongs_to_the_folder_of_its_outermost_package(
    folder: Path, path: str, module: str, package: str
) -> None:
    assert package_of(script(folder / path, module=module)) == folder / package


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
    own = write(folder, "train.py", "import breakeven\n")
    with pytest.raises(CodeNotAllowed):  # all of it would be copied to where its pages lie
        check_script(script(own, folder=str(tmp_path)))
