"""Planted faults are caught in a user's own script, and correct backends are not called broken. As
in `test_faults.py`, but for the faults that a script cannot show: it is judged without a rehearsal
without dropout, and the update of the weights is not compiled."""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from torch._dynamo import list_backends, register_backend
from torch.fx import GraphModule

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import ScriptSpec
from breakeven.storage.comparison.results import Result
from tests.faults.judging import judge_trial, parity_of
from tests.faults.trial import FIRST_EFFECTS, FOLDER, SCALED, train_arms

pytestmark = pytest.mark.heavy

CORRECT = ("eager", "aot_eager")
FAULTS = {name: step for name, step in FIRST_EFFECTS.items() if name != "skipped_update"} | {
    SCALED: 1
}
"""The first step whose loss each fault changes; a fault that skips an update must compile it."""
SOON = 20
SPEC = ExperimentSpec(
    name="own script",
    task="script",
    model=ModelSpec(source=f"script:{FOLDER / 'own_script.py'}"),
    data=DataSpec(source="script"),
    block_steps=20,
    profile_steps=0,
)


def trained(
    folder: Path, argument: str, backends: tuple[str, ...], spec: ExperimentSpec = SPEC
) -> dict[str, Result]:
    """One experiment in this process; argv, path and folder are restored after each run."""
    spec = replace(spec, script=ScriptSpec(arguments=(argument,)), backends=backends)
    argv, path, here = sys.argv, sys.path[:], Path.cwd()
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER)}):
        for _ in train_arms(folder, spec):
            sys.argv, sys.path[:] = argv, path
            sys.modules.pop("relu_net", None)
            os.chdir(here)
    return {result.label: result for result in judge_trial(folder).results}


DAILY = ("aot_eager", "stale_batch", "wrong_epsilon", SCALED)
"""The fault that begins last, the one with the smallest effect, and the one of scripts alone."""


@pytest.mark.parametrize(
    "backends",
    [DAILY, pytest.param((*CORRECT, *FAULTS), marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def test_a_planted_fault_is_broken_soon_after_it_begins_and_correct_backends_beside_it_hold(
    tmp_path: Path, backends: tuple[str, ...]
) -> None:
    results = trained(tmp_path, "0", backends)
    for name in backends:
        parity = parity_of(results, name, "broken" if name in FAULTS else "holds")
        if name in FAULTS:
            assert parity.first_step_outside is not None, name
            assert FAULTS[name] <= parity.first_step_outside <= FAULTS[name] + SOON, name


@pytest.mark.slow
def test_a_first_loss_is_left_open_only_if_the_backend_drew_other_numbers(tmp_path: Path) -> None:
    """`own_numbers` is right and `dropout_wrong_rate` is not: both draw one number more than eager,
    and nobody can tell from a first loss. `wrong_epsilon` draws the same, so it cannot be that."""
    backends = ("own_numbers", "wrong_epsilon", "dropout_wrong_rate")
    results = trained(tmp_path, "0.1", backends)
    for name, verdict in zip(backends, ("unknown", "broken", "unknown"), strict=True):
        parity_of(results, name, verdict)


def unmoved(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Returns, in place of each result with the shape of an argument, this argument times 0.9, as
    if no gradient had moved it."""

    def call(*arguments: Any) -> list[Any]:
        by_shape = {argument.shape: argument for argument in arguments}
        return [0.9 * by_shape.get(result.shape, result / 0.9) for result in graph(*arguments)]

    return call


@pytest.mark.parametrize("returned", ["weights", pytest.param("slopes", marks=pytest.mark.slow)])
def test_weights_that_a_step_gets_back_wrong_are_a_fault_and_no_other_data(
    tmp_path: Path, returned: str
) -> None:
    if "unmoved" not in list_backends(exclude_tags=None):
        register_backend(unmoved, name="unmoved")
    spec = replace(
        SPEC, model=ModelSpec(source=f"script:{FOLDER / 'functional_script.py'}"), block_steps=10
    )
    results = trained(tmp_path, returned, ("aot_eager", "unmoved"), spec)
    parity_of(results, "aot_eager", "holds")
    assert parity_of(results, "unmoved", "broken").first_step_outside == 1
