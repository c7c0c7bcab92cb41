"""Planted faults are caught in a person's own script, and correct backends are not called broken.

As in `test_faults.py`, but for faults that a script gives no hold: it is judged without a rehearsal
that takes its dropout out, and what updates the weights is not compiled.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import ScriptSpec
from breakeven.storage.comparison.results import Result
from breakeven.storage.terminal.parity_words import parity_words
from tests.faults.judging import judge_trial
from tests.faults.trial import FIRST_EFFECTS, FOLDER, SCALED, train_variants

pytestmark = pytest.mark.heavy

CORRECT = ("eager", "aot_eager")
FAULTS = {name: step for name, step in FIRST_EFFECTS.items() if name != "skipped_update"} | {
    SCALED: 1
}
"""First step whose loss each changes; who skips an update of the weights must compile it."""
SOON = 20
SPEC = ExperimentSpec(
    name="own script",
    task="script",
    model=ModelSpec(source=f"script:{FOLDER / 'own_script.py'}"),
    data=DataSpec(source="script"),
    block_steps=20,
    profile_steps=0,
)


def trained(folder: Path, dropout: str, backends: tuple[str, ...]) -> dict[str, Result]:
    """One experiment in this process, each run of which leaves argv, path and folder as found."""
    spec = replace(SPEC, script=ScriptSpec(arguments=(dropout,)), backends=backends)
    argv, path, here = sys.argv, sys.path[:], Path.cwd()
    with mock.patch.dict(os.environ, {CODE_VARIABLE: str(FOLDER)}):
        for _ in train_variants(folder, spec):
            sys.argv, sys.path[:] = argv, path
            sys.modules.pop("relu_net", None)
            os.chdir(here)
    return {result.label: result for result in judge_trial(folder).results}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    return trained(tmp_path_factory.mktemp("trial"), "0", (*CORRECT, *FAULTS))


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_broken_soon_after_it_begins_and_never_before(
    results: dict[str, Result], fault: str
) -> None:
    parity = results[fault].parity
    assert parity is not None
    assert parity.verdict == "broken", str(parity_words(parity))
    assert parity.first_step_outside is not None
    assert FAULTS[fault] <= parity.first_step_outside <= FAULTS[fault] + SOON


@pytest.mark.parametrize("backend", CORRECT)
def test_a_correct_backend_holds_beside_the_faults(
    results: dict[str, Result], backend: str
) -> None:
    parity = results[backend].parity
    assert parity is not None
    assert parity.verdict == "holds", str(parity_words(parity))


def test_a_first_loss_is_left_open_only_if_the_backend_drew_other_numbers(
    tmp_path: Path,
) -> None:
    """`own_numbers` is right and `dropout_wrong_rate` is not: both draw one number more than eager,
    and nobody can tell from a first loss. `wrong_epsilon` draws the same, so it cannot be that."""
    backends = (
        "aot_eager", "own_numbers", "wrong_epsilon", "dropout_wrong_rate", "zeroed_gradients"
    )  # fmt: skip
    found = trained(tmp_path, "0.1", backends)
    verdicts = {name: found[name].parity for name in backends}
    assert {name: parity and parity.verdict for name, parity in verdicts.items()} == {
        "aot_eager": "holds",
        "own_numbers": "unknown",
        "wrong_epsilon": "broken",
        "dropout_wrong_rate": "unknown",
        "zeroed_gradients": "broken",
    }
