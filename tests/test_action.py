"""The action for GitHub: its steps, run as GitHub runs them, with hostile inputs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from breakeven.runner.project import PROJECT_ROOT

ACTION: dict[str, Any] = yaml.safe_load((PROJECT_ROOT / "action.yml").read_text())
STEPS = {step["id"]: step for step in ACTION["runs"]["steps"]}
HOSTILE = "$(touch hit) `touch hit` ; touch hit # '\" \\ ${{ secrets.X }} *"
STUB = """#!/bin/bash
if [ "$3" != breakeven ]; then exec {python} "$@"; fi
printf '%s\\0' "$@" > {seen}
echo '{{"experiment_id": "20261121-093015-123456-7f3a", "answer": {{"kind": "use"}}}}'
exit {status}
"""
"""Stands for a Python that runs Breakeven: writes down what it is called with."""


def run_step(step: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", STEPS[step]["run"]]
    known = {
        **os.environ,
        "RUNNER_TEMP": str(folder),
        "GITHUB_OUTPUT": str(folder / "output"),
        "PYTHONPATH": str(PROJECT_ROOT),
    }
    return subprocess.run(command, cwd=folder, env=known | variables, text=True)


def outputs(folder: Path) -> dict[str, str]:
    lines = (folder / "output").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def measured(folder: Path, status: int = 0, **inputs: str) -> tuple[int, list[str]]:
    """Exit status of the step that measures, and the arguments of its command."""
    stub, seen = folder / "python stub", folder / "seen"
    stub.write_text(STUB.format(python=sys.executable, seen=seen, status=status))
    stub.chmod(0o755)
    names = {"command", "arms", "baseline", "plan", "fail-if", "options"}
    values = dict.fromkeys(names, "") | {name.replace("_", "-"): inputs[name] for name in inputs}
    variables = {name.upper().replace("-", "_"): value for name, value in values.items()}
    ended = run_step("run", folder, PYTHON=str(stub), **variables)
    return ended.returncode, seen.read_text().split("\0")[:-1]


def test_no_input_is_part_of_a_shell_text_and_every_input_is_used() -> None:
    used = set[str]()
    for step in STEPS.values():
        assert step["shell"] == "bash" and "${{" not in step["run"]
        used |= {*step["env"].values(), step.get("working-directory", "")}
    for name, declared in ACTION["inputs"].items():
        assert f"${{{{ inputs.{name} }}}}" in used, name
        assert declared["description"]
    assert {"command", "arms", "plan", "fail-if", "python"} <= set(ACTION["inputs"])


@pytest.mark.heavy
def test_each_input_is_one_argument_whatever_it_holds(tmp_path: Path) -> None:
    status, words = measured(
        tmp_path,
        command="env A=1 python 'my train.py' --name \"a b\" '$(touch hit)' *",
        arms=f"plain=--lr 0.1\n\n{HOSTILE}",
        options="--steps=300\n--family=agent 7",
        baseline=HOSTILE,
        plan="20000 steps",
        fail_if="slower,compile>120",
    )
    assert status == 0 and not (tmp_path / "hit").exists()
    assert words == [
        *("-P", "-m", "breakeven", "run", "--json", f"--markdown={tmp_path}/breakeven.md"),
        *("--arm=plain=--lr 0.1", f"--arm={HOSTILE}", "--steps=300", "--family=agent 7"),
        *(f"--baseline={HOSTILE}", "--plan=20000 steps", "--fail-if=slower,compile>120", "--"),
        *("env", "A=1", "python", "my train.py", "--name", "a b", "$(touch hit)", "*"),
    ]


@pytest.mark.heavy
def test_the_job_has_the_outputs_and_fails_with_the_status_of_the_command(tmp_path: Path) -> None:
    status, words = measured(tmp_path, status=5, command="python train.py")
    assert status == 5
    assert words[-3:] == ["--", "python", "train.py"], "an empty input is no option"
    assert outputs(tmp_path) == {
        "status": "5",
        "experiment": "20261121-093015-123456-7f3a",
        "answer": "use",
        "json": f"{tmp_path}/breakeven.json",
        "markdown": f"{tmp_path}/breakeven.md",
    }
    assert json.loads((tmp_path / "breakeven.json").read_text())["answer"] == {"kind": "use"}
    assert set(ACTION["outputs"]) == set(outputs(tmp_path))


@pytest.mark.heavy
def test_a_python_with_breakeven_is_used_as_it_is(tmp_path: Path) -> None:
    """A folder of the checkout that is called breakeven is not taken for it."""
    (tmp_path / "breakeven").mkdir()
    link = tmp_path / "python"
    link.symlink_to(sys.executable)
    assert run_step("install", tmp_path, PYTHON="./python", SOURCE="unused").returncode == 0
    assert outputs(tmp_path) == {"python": str(link)}
