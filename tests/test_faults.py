"""Planted faults are called broken, and correct backends are not, in real trainings on the CPU. One
seed; benchmarks/parity_trials.py and late_trials.py have hundreds."""

from pathlib import Path

import pytest

from breakeven.storage.comparison.results import Result
from tests.faults.judging import judge_trial, parity_of
from tests.faults.late_faults import LATE_FAULTS
from tests.faults.rounding_backends import ROUNDING
from tests.faults.trial import FIRST_EFFECTS, TORCHS_OWN, train_long_trial, train_trial

pytestmark = pytest.mark.heavy

CORRECT = ("eager", "aot_eager", "own_numbers")
"""The last backend draws its own random numbers for dropout."""
SOON = 20
"""Steps after its first effect within which a fault must show."""


FORWARD = ":scope=forward"
"""Compiles in a third of the time; a skipped update must compile the whole step."""
DAILY = (
    f"own_numbers{FORWARD}",
    "skipped_update",
    f"wrong_epsilon{FORWARD}",
    f"{TORCHS_OWN}{FORWARD}",
)
"""Of the faults the one that begins last, the one that strays least, and one that learns faster."""


def judged(folder: Path) -> dict[str, Result]:
    return {result.label.removesuffix("-forward"): result for result in judge_trial(folder).results}


@pytest.fixture(
    scope="module",
    params=[DAILY, pytest.param((*CORRECT, *FIRST_EFFECTS), marks=pytest.mark.slow)],
    ids=["few", "all"],
)
def results(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Result]:
    """One experiment with faulty and correct backends, by name."""
    folder = tmp_path_factory.mktemp("trial")
    train_trial(folder, "relu net", seed=1, backends=request.param)
    return judged(folder)


def test_a_planted_fault_is_broken_soon_after_it_begins_and_never_before(
    results: dict[str, Result],
) -> None:
    faults = [label for label in FIRST_EFFECTS if label in results]
    assert len(faults) >= 3
    for fault in faults:
        parity = parity_of(results, fault, "broken")
        assert parity.first_step_outside is not None, fault
        begins = FIRST_EFFECTS[fault]
        assert begins <= parity.first_step_outside <= begins + SOON, fault


def test_a_correct_backend_holds_beside_the_faults(results: dict[str, Result]) -> None:
    for backend in [label for label in CORRECT if label in results]:
        parity_of(results, backend, "holds")


def test_a_loss_that_ends_lower_is_no_proof_of_parity(results: dict[str, Result]) -> None:
    """Torch's own wrong relu learns faster here: a one-sided check would approve it."""
    wrong, baseline = results[TORCHS_OWN], results["baseline"]
    assert wrong.measured.final_loss is not None and baseline.measured.final_loss is not None
    assert wrong.measured.final_loss < baseline.measured.final_loss
    parity_of(results, TORCHS_OWN, "broken")


BEGINS, NUM_STEPS = 300, 400
WINDOW = 30
"""More steps than a window of this training has."""
CHANGING = [fault for fault in LATE_FAULTS if fault != "late_half_dead"]
"""If half of the parameters stand still in the last quarter, nothing changes here: the final loss
is among those of equal trainings."""
HOLD_LATE = ("aot_eager", "own_numbers", *ROUNDING)
"""Of the correct ones those that compute otherwise than what is not compiled."""
FROZEN_HEAD = "late_frozen_head"
"""A last layer that stands still for the last quarter, too."""


@pytest.fixture(scope="module")
def late(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """Trainings that rounding has driven apart long before the faults begin, by name."""
    folder = tmp_path_factory.mktemp("late")
    backends = (*HOLD_LATE, *CHANGING, FROZEN_HEAD)
    train_long_trial(folder, "noisy net", 1, backends, controls=1, fault_begins=BEGINS)
    return judged(folder)


@pytest.mark.slow
def test_a_fault_that_begins_after_the_band_is_broken_from_where_it_begins(
    late: dict[str, Result],
) -> None:
    for fault in CHANGING:
        parity = parity_of(late, fault, "broken")
        assert parity.first_step_outside is not None, fault
        assert BEGINS - WINDOW <= parity.first_step_outside <= NUM_STEPS, fault


@pytest.mark.slow
def test_a_correct_backend_holds_beside_late_faults(late: dict[str, Result]) -> None:
    for backend in HOLD_LATE:
        parity = parity_of(late, backend, "holds")
        if backend == "own_numbers":
            continue
        assert parity.band_ended and parity.last_step_in_band is not None, backend
        assert parity.last_step_in_band < BEGINS, f"{backend}: the first instrument was blind"


@pytest.mark.slow
def test_a_fault_that_changes_no_outcome_is_said_to_be_checked_only_up_to_an_earlier_step(
    late: dict[str, Result],
) -> None:
    parity = parity_of(late, FROZEN_HEAD, "holds")
    assert parity.band_ended and parity.last_step_in_band is not None
    assert parity.last_step_in_band < BEGINS
