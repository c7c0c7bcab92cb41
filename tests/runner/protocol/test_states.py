"""What the states of runs mean, and what they come to for an experiment."""

import ast
from pathlib import Path

import pytest

from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol import states
from breakeven.runner.protocol.states import (
    ACTIVE_RUNS,
    FAILED_RUNS,
    FINAL_EXPERIMENTS,
    ExperimentState,
    RunState,
)
from tests.helpers.syntax import nodes


def test_a_run_is_active_here_or_elsewhere_or_over() -> None:
    assert ACTIVE_RUNS == ["queued", "running"]
    over = {state.value for state in RunState if state.is_final}
    assert over == set(RunState) - {"queued", "running", "elsewhere"}


def test_a_run_that_was_stopped_ended_early_and_has_not_failed() -> None:
    assert FAILED_RUNS == ["failed", "timeout", "out_of_memory", "lost"]
    assert RunState.CANCELLED.ended_early and not RunState.FINISHED.ended_early


def test_an_experiment_on_another_machine_is_neither_active_nor_over() -> None:
    state = ExperimentState.from_runs([RunState.FINISHED, RunState.ELSEWHERE])
    assert state is ExperimentState.ELSEWHERE
    assert not state.is_active and not state.is_final
    assert FINAL_EXPERIMENTS == ["finished", "cancelled", "partly_failed", "failed"]


@pytest.mark.parametrize("part", ["runner", "storage", "views"])
def test_nobody_else_lists_states(part: str) -> None:
    names = {state.value for state in (*RunState, *ExperimentState)}
    for file in {*(PROJECT_ROOT / part).rglob("*.py")} - {Path(states.__file__).resolve()}:
        for node in nodes(file):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                texts = [node.value for node in node.elts if isinstance(node, ast.Constant)]
                assert len(names & {text for text in texts if isinstance(text, str)}) < 2, file
