"""The options of the command line say everything that a specification can say."""

import shlex
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import fields, is_dataclass, replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import get_type_hints

import pytest

from breakeven.runner import extras
from breakeven.runner.arguments.options import (
    FIELDS,
    command_line,
    list_fields,
    read_spec,
    write_spec,
)
from breakeven.runner.commands import cli, start, waiting
from breakeven.runner.commands.cli import parser
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.experiments.queue import find_experiment
from breakeven.runner.machine.capabilities import Capabilities
from breakeven.runner.machine.quick_race import QUICK_RACE, adjusted
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.views.form.presets import PRESETS
from tests.helpers.changed import CHANGED, TOGETHER, with_changes
from tests.helpers.machine import MACHINE, WITH_GPU, keep

shared_parser = cache(parser)  # Making it takes longer than reading a line.


def read(*arguments: str) -> ExperimentSpec:
    return read_spec(shared_parser().parse_args(["compare", *arguments]))


def paths_of(kind: type, prefix: str = "") -> list[str]:
    """Every field of a specification by path, found without the module under test."""
    paths = []
    for name, hint in get_type_hints(kind).items():
        nested = is_dataclass(hint) and [f"{name}.{field.name}" for field in fields(hint)]
        paths += nested or [name]
    return paths


def test_every_field_has_an_option_with_a_text_of_its_own() -> None:
    # Set by the commands `queue suite`, `tune` and `investigate` and by the supervisor alone.
    by_commands = {"suite_run", "fallback_of", "confirms", "investigates"}
    by_commands |= {"family_place", "family_level"}  # by queueing
    parts = ("tune.", "investigation.")
    expected = {path for path in paths_of(ExperimentSpec) if not path.startswith(parts)}
    assert set(FIELDS) == expected - by_commands == set(CHANGED)
    flags = [field.flag for field in FIELDS.values() if not field.prompt.rare]
    assert len(set(flags)) == len(flags)
    assert len({(field.section, field.label) for field in FIELDS.values()}) == len(FIELDS)
    assert not [path for path, field in FIELDS.items() if not field.prompt.help]


@pytest.mark.parametrize("path", CHANGED)
def test_the_command_that_reproduces_an_experiment_says_each_field(path: str) -> None:
    spec = with_changes(path)
    command = shlex.split(command_line(spec).replace("\\\n", " "))
    assert command[:2] == ["breakeven", "compare"]
    assert read(*command[2:]) == spec != ExperimentSpec(name="one")


def test_what_has_its_default_is_not_said_but_for_the_device_and_the_model() -> None:
    """The device depends on the machine; without a model the command would be the quick race."""
    written = ["--device=cpu", "--model=builtin:bert-tiny", "--name=one"]
    assert sorted(write_spec(ExperimentSpec(name="one"))) == written


def test_without_model_data_and_task_the_command_is_the_quick_race_of_the_page() -> None:
    assert read() == QUICK_RACE == PRESETS["quick"].spec
    assert read(*write_spec(QUICK_RACE)) == QUICK_RACE
    longer = read("--epochs=2")
    assert longer == replace(
        QUICK_RACE,
        name="bert-tiny on reviews, batch 8, inductor:scope=blocks",
        training=replace(QUICK_RACE.training, epochs=2),
    )
    assert read("--ladder").backends[0] == "eager"
    own = ("--model=builtin:bert-tiny", "--data=builtin:reviews", "--set=task=text_classification")
    for words in own:
        assert read(words).training.learning_rate == 5e-5, words


@pytest.mark.parametrize(("machine", "device"), [(MACHINE, "cpu"), (WITH_GPU, "cuda:0")])
def test_an_experiment_that_names_no_device_is_queued_for_the_first_gpu_or_else_the_cpu(
    machine: Capabilities, device: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(DataDir(tmp_path), machine)
    assert cli.main(["queue", "add", f"--data-folder={tmp_path}", "--backends=inductor"]) == 0
    spec = find_experiment(DataDir(tmp_path), capsys.readouterr().out.strip()).spec
    assert spec.devices == (device,)
    assert spec.name.endswith("inductor" if device == "cpu" else "inductor, cuda:0")


def test_a_device_that_options_or_a_file_name_counts_on_every_machine(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    file.write_text(ExperimentSpec(name="one").to_json())
    for arguments in (["--device=cpu"], [f"--spec={file}"]):
        options = parser().parse_args(["compare", *arguments])
        assert read_spec(options, adjusted(QUICK_RACE, WITH_GPU)).devices == ("cpu",)


def test_an_experiment_is_called_after_its_model_and_data_unless_it_has_a_name() -> None:
    assert read("--task=text_classification").name == "bert-tiny on reviews, batch 8, inductor"
    named = read("--model=hub/some-bert", "--data=/a/b.csv", "--backends=")
    assert (named.name, named.backends) == ("some-bert on b.csv, batch 8", ())
    assert read("--name=mine").name == "mine"


def test_options_beside_a_file_replace_its_values(tmp_path: Path) -> None:
    file = tmp_path / "spec.json"
    spec = with_changes(*TOGETHER)
    file.write_text(spec.to_json())
    assert read(f"--spec={file}") == spec
    command = shlex.split(command_line(spec).replace("\\\n", " "))
    assert read(*command[2:]) == spec, "all fields together"
    assert read("--set=stopping.threshold=none").stopping.threshold is None
    with pytest.raises(InvalidSpec, match="one of 'drop', 'pad', 'dynamic'; did you mean 'pad'"):
        read("--set=training.last_batch=pat")
    changed = read(f"--spec={file}", "--batch-size=16", "--name=other")
    assert (changed.name, changed.training.batch_size) == ("other", 16)
    assert changed.training.losses == spec.training.losses
    with pytest.raises(RunnerError, match=r"nowhere\.json cannot be read"):
        read(f"--spec={tmp_path / 'nowhere.json'}")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--set=training.optimizer_options=momentum"], "'momentum' must read name=value"),
        (["--batch-size=many"], "argument --batch-size: 'many' must be a whole number"),
        (["--max-steps=1e20"], "argument --max-steps: '1e20' must be a whole number"),
        (["--max-steps=" + "9" * 5000], "is not a finite number"),
        (["--max-steps=" + "9" * 400], "must be at most 9,223,372,036,854,775,807"),
        (["--learning-rate=fast"], "'fast' must be a number, such as 0.001"),
        (["--set=training.last_batch"], "must read FIELD=VALUE"),
        (["--set=training.last_bach=pad"], "did you mean 'training.last_batch'?"),
        (["--set=speed.min_rounds=many"], "speed.min_rounds: 'many' must be a whole number"),
        (["--set=stopping.nonfinite=perhaps"], "stopping.nonfinite: 'perhaps' must be yes or no"),
        (["--set=suite_run=x"], "'suite_run' is not a field here"),
    ],
)
def test_what_cannot_be_read_is_refused_by_its_option(
    arguments: Sequence[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        read(*arguments)
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_help_groups_the_options_by_the_parts_of_a_specification(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["compare", "--help"])
    help = capsys.readouterr().out
    titles = "experiment", "model", "data", "training", "evaluation", "checkpoints", "speed"
    places = [help.index(f"\n{title}:\n") for title in titles]
    assert places == sorted(places)
    assert help.index("--max-seconds") > places[-1]


def test_where_duckdb_is_missing_it_is_said_how_to_compare_elsewhere(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As on a GPU server where nothing but torch and transformers is installed."""
    monkeypatch.setattr(extras, "find_spec", lambda name: None)
    options = parser().parse_args(["compare", "--plan=8h"])
    assert start.judge(waiting.Storage(data_dir), "20261121-093015-123456-7f3a", options) == 2
    said = capsys.readouterr().out
    assert str(data_dir.runs) in said and "duckdb, which is not installed here" in said
    command = "breakeven show 20261121-093015-123456-7f3a '--plan=8.0 hours' --data-folder FOLDER"
    assert f"`{command}`" in said


RARE = [path for path, field in FIELDS.items() if field.prompt.rare]


@pytest.fixture(scope="module")
def help_text() -> str:
    with redirect_stdout(StringIO()) as shown, pytest.raises(SystemExit):
        read("--help")
    return shown.getvalue()


@pytest.mark.parametrize("path", RARE)
def test_a_field_that_few_need_is_set_by_its_path_and_not_listed(path: str, help_text: str) -> None:
    field = FIELDS[path]
    values = CHANGED[path] if field.prompt.several and not field.prompt.words else [CHANGED[path]]
    texts = [
        text if field.prompt.several and not field.prompt.words else field.written(text)
        for text in values
    ]
    needed = [argument for argument in write_spec(with_changes(path)) if path not in argument]
    spec = read(*needed, *(f"--set={path}={text}" for text in texts))
    assert field.value_in(spec) == CHANGED[path]
    assert field.value_in(read(*write_spec(with_changes(path)))) == CHANGED[path]
    assert f"\n{path}\n    " in f"\n{list_fields()}"
