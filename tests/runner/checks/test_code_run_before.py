"""What an account ran by naming it in a command may run again; nothing else may."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.code_run_before import folders_for, record_file, remember
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.runner.specs.follow_ups import investigation

CASE = Path("/home/me/case")
SCRIPT = ExperimentSpec(
    name="train.py",
    task="script",
    backends=("inductor", "aot_eager"),
    model=ModelSpec(source=f"script:{CASE}/train.py"),
    data=DataSpec(source="script"),
    script=ScriptSpec(arguments=("--lr", "0.1")),
)
MODEL = ExperimentSpec(
    name="net",
    task="custom",
    model=ModelSpec(source=f"{CASE}/net.py:make"),
    data=DataSpec(source=f"{CASE}/net.py:samples"),
    callbacks=(f"{CASE}/hooks.py:Count",),
)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An account that has run nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("spec", [SCRIPT, MODEL], ids=["script", "model"])
def test_an_investigation_of_what_this_account_ran_has_its_folders(spec: ExperimentSpec) -> None:
    assert folders_for(spec) == []
    remember(spec, [CASE])
    derived = investigation(spec, "20261128-154635-624593-6574", spec.backends[0], "raises")
    assert folders_for(spec) == folders_for(derived) == [CASE]


@pytest.mark.parametrize(
    "other",
    [
        replace(SCRIPT, model=ModelSpec(source=f"script:{CASE}/other.py")),
        replace(SCRIPT, script=ScriptSpec(arguments=("--lr", "0.1", "--delete", "/home/me"))),
        replace(SCRIPT, script=ScriptSpec(arguments=("--lr", "0.1"), folder="/home/me")),
        replace(SCRIPT, script=ScriptSpec(arguments=("--lr", "0.1"), module="train")),
        replace(SCRIPT, script=ScriptSpec(arguments=("--lr", "0.1"), variables=("A=1",))),
        replace(SCRIPT, backends=(f"{CASE}/evil.py:compile",)),
        replace(SCRIPT, environments=("other=/home/me/evil/bin/python",)),
        replace(MODEL, callbacks=(f"{CASE}/evil.py:Count",)),
        replace(MODEL, data=DataSpec(source=f"{CASE}/net.py:evil")),
        replace(
            MODEL, task="text_classification", model=ModelSpec(), data=DataSpec(), callbacks=()
        ),
    ],
)
def test_other_code_arguments_or_folders_have_none_even_beside_what_was_run(
    other: ExperimentSpec,
) -> None:
    remember(SCRIPT, [CASE])
    remember(MODEL, [CASE])
    assert folders_for(other) == []


def test_two_commands_together_allow_no_third(state: Path) -> None:
    """The model of one command and the callback of another were never run together."""
    bare = replace(MODEL, callbacks=())
    remember(bare, [CASE])
    remember(
        replace(
            MODEL, model=ModelSpec(source="/tmp/b.py:make"), data=DataSpec(source="/tmp/b.py:data")
        ),
        [Path("/tmp")],
    )
    assert folders_for(bare) == [CASE] and folders_for(MODEL) == []


def test_a_record_that_others_may_write_counts_for_nothing_nor_does_a_link(state: Path) -> None:
    remember(SCRIPT, [CASE])
    file = record_file()
    assert file.is_relative_to(state) and file.stat().st_mode & 0o777 == 0o600
    file.chmod(0o620)
    assert folders_for(SCRIPT) == []
    file.chmod(0o600)
    file.rename(state / "elsewhere.jsonl")
    file.symlink_to(state / "elsewhere.jsonl")
    assert folders_for(SCRIPT) == []
    remember(SCRIPT, [CASE])  # cannot be written, and says nothing
    assert len((state / "elsewhere.jsonl").read_text().splitlines()) == 1


def test_torn_and_foreign_lines_are_passed_over_and_repeated_commands_add_none() -> None:
    remember(MODEL, [CASE])
    with record_file().open("a") as record:
        record.write('{"code": ["a\n[1]\n{"code": 3, "folders": []}\n')
    remember(SCRIPT, [CASE])
    remember(SCRIPT, [CASE])
    assert folders_for(SCRIPT) == folders_for(MODEL) == [CASE]
    assert len(record_file().read_text().splitlines()) == 5
    assert "--lr" not in record_file().read_text(), "arguments may have secrets"
    assert json.loads(record_file().read_text().splitlines()[0])["folders"] == [str(CASE)]
