"""What is said of a training script before anything starts."""

from pathlib import Path

import pytest

from breakeven.runner.checks.user_code import CODE_VARIABLE, check_script
from breakeven.runner.errors import CodeNotAllowed, InvalidSpec
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.setenv(CODE_VARIABLE, str(folder))
    return folder


def spec(file: Path, **changes: object) -> ExperimentSpec:
    script = ScriptSpec(**changes)  # type: ignore[arg-type]
    return ExperimentSpec(name="mine", task="script", model=ModelSpec(source=f"script:{file}"),
                          data=DataSpec(source="script"), script=script)  # fmt: skip


def test_a_script_that_says_where_steps_end_may_start(project: Path) -> None:
    file = project / "train.py"
    file.write_text("import breakeven\n")
    check_script(spec(file))
    file.write_text("from transformers import Trainer\n")
    check_script(spec(file))
    # A file beside it may say it, too.
    file.write_text("from loop import train\ntrain()\n")
    (project / "loop.py").write_text("import breakeven\n")
    check_script(spec(file))


def test_what_is_no_python_is_said_with_its_line(project: Path) -> None:
    file = project / "train.py"
    file.write_text("import breakeven\n\ndef broken(:\n")
    with pytest.raises(InvalidSpec, match="not valid Python: line 3"):
        check_script(spec(file))
    file.write_bytes(b"\x00\xff")
    with pytest.raises(InvalidSpec, match=r"train\.py"):
        check_script(spec(file))


def test_a_script_that_nowhere_ends_a_step_is_told_how(project: Path) -> None:
    file = project / "train.py"
    file.write_text("import torch\nfor _ in range(3): pass\n")
    with pytest.raises(InvalidSpec, match=r"breakeven\.step\(loss\)"):
        check_script(spec(file))


def test_a_module_that_would_be_taken_for_ours_is_named(project: Path) -> None:
    file = project / "train.py"
    file.write_text("import breakeven\n")
    (project / "runner").mkdir()
    check_script(spec(file))
    (project / "breakeven").mkdir()
    with pytest.raises(InvalidSpec, match="your module 'breakeven'"):
        check_script(spec(file))


def test_a_script_and_its_folder_must_be_there_and_allowed(project: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="there is no file"):
        check_script(spec(project / "missing.py"))
    other = tmp_path / "other.py"
    other.write_text("import breakeven\n")
    with pytest.raises(CodeNotAllowed):
        check_script(spec(other))
    mine = project / "train.py"
    mine.write_text("import breakeven\n")
    with pytest.raises(CodeNotAllowed):  # all of it would be copied to where its pages lie
        check_script(spec(mine, folder=str(tmp_path)))
