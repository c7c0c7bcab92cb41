"""What files and devices show is refused at once, before torch is imported and a run is queued."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.refused_experiments import FILE_TASKS, check_at_once
from breakeven.runner.commands.cli import main
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.machine import capabilities
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from tests.helpers.machine import MACHINE

PLAIN = ExperimentSpec(name="one")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (replace(PLAIN, data=DataSpec(source="/no/texts.csv")), "no such file or folder"),
        (replace(PLAIN, model=ModelSpec(source="./no-model")), "no such file or folder"),
        (replace(PLAIN, devices=("cuda:7",)), "no GPU is visible"),
    ],
)
def test_a_missing_file_model_or_gpu_is_refused_without_a_description_of_the_machine(
    spec: ExperimentSpec, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "_likely_device", lambda: "cpu")
    with pytest.raises(InvalidSpec, match=said):
        check_at_once(spec, None)


def test_a_visible_gpu_and_a_gpu_of_another_environment_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    on_gpu = replace(PLAIN, devices=("cuda:0",))
    monkeypatch.setattr(capabilities, "_likely_device", lambda: "cpu")
    assert not check_at_once(replace(on_gpu, environments=("x=/usr/bin/python3",)), None)
    monkeypatch.setattr(capabilities, "_likely_device", lambda: "cuda:0")
    assert not check_at_once(on_gpu, None)


@pytest.mark.heavy  # reads a file in a process
def test_a_missing_column_is_refused_and_leaves_no_experiment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "texts.csv").write_text("text,stars\ngood,1\nbad,0\n")
    monkeypatch.chdir(tmp_path)
    command = ["compare", f"--data-folder={tmp_path / 'data'}", "--data=texts.csv"]
    assert main([*command, "--text-column=words"]) == 2
    said = "data.text_column = 'words': is not a column of texts.csv; it has text, stars"
    assert capsys.readouterr().err.strip() == said
    assert not (tmp_path / "data" / "runs").exists()


def test_what_is_known_of_tasks_without_torch_is_what_their_modules_say() -> None:
    for name, task in FILE_TASKS.items():
        real = MACHINE.tasks[name]
        assert (task.samples, task.labels) == (real.samples, real.labels), name
