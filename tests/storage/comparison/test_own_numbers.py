"""A backend that draws other random numbers than the baseline is judged by what can be compared."""

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pytest

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec, ModelSpec
from breakeven.runner.worker.event_log import EventLog
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.terminal.parity_words import parity_text, parity_words
from tests.helpers.journals import EXPERIMENT_ID, experiment_spec, record_experiment

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(80, model=ModelSpec(dropout="keep"))
EVEN = [-6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
REHEARSED = [2 - step / 100 for step in range(40)]


def dropout(compiled: bool, number: int, share: float) -> dict[str, Any]:
    kept, scale = round(10_000 * (1 - share)), 1 / (1 - share)
    squares = kept * scale**2
    return {
        "compiled": compiled, "number": number, "operation": "dropout", "p": 0.1, "tried": 10_000,
        "zeros": 10_000 - kept, "sum": kept * scale, "squares": squares, "backward": squares,
    }  # fmt: skip


def parity_of(
    data_dir: DataDir,
    *,
    offset: float = 0.2,
    same: bool = False,
    shift: float = 0.0,
    rehearsed: Sequence[float] = REHEARSED,
    shares: Sequence[float] = (0.101, 0.099),
    inference_draws: bool = False,
    loss_by_draw: Sequence[float] = tuple(1 + one / 10 for one in EVEN * 2),
) -> Parity:
    """Of a backend whose losses lie `offset` beside the baseline's, with what its check recorded:
    `shift` lies between its changes and those without a compiler, `shares` are what its two
    dropouts dropped, where 10 % of 10,000 are dropped without a compiler."""
    record_experiment(data_dir.runs, SPEC, backend_offset=offset)
    log = EventLog(data_dir.run_dir(f"{EXPERIMENT_ID}.inductor").events_file)
    log.append(
        "random_numbers",
        same=same,
        num_draws=12,
        loss_by_draw=list(loss_by_draw),
        inference_draws=inference_draws,
    )
    if not same:
        drawn = [*EVEN, *(one + shift for one in EVEN)]
        distances = [(one - other) ** 2 for one, other in combinations(drawn, 2)]
        log.append("redraw", tensor="head.weight", change=1.0, distances=distances)
        perturbed = [loss * 1.00001 for loss in REHEARSED]
        for form, losses in (("eager", REHEARSED), ("perturbed", perturbed),
                             ("compiled", rehearsed)):  # fmt: skip
            log.append("rehearsal", form=form, loss_by_step=list(losses))
        log.extend("dropout", [dropout(False, number, 0.1) for number in range(2)])
        log.extend("dropout", [dropout(True, *each) for each in enumerate(shares)])
    log.close()
    with Store.in_memory(data_dir) as store:
        (found,) = [one.parity for one in compare(store, EXPERIMENT_ID).results if one.parity]
    return found


def test_other_random_numbers_alone_break_nothing(data_dir: DataDir) -> None:
    parity = parity_of(data_dir)
    assert (parity.verdict, parity_text(parity)) == ("holds", "matches")
    assert str(parity_words(parity)) == (
        "it draws other random numbers than are drawn without a compiler; without dropout the loss "
        "stays within 0 x the band over the first 30 of 40 steps"
    )


def test_the_same_losses_of_a_backend_that_draws_the_same_numbers_are_broken(
    data_dir: DataDir,
) -> None:
    parity = parity_of(data_dir, same=True)
    assert parity.verdict == "broken" and parity.first_step_outside == 0


def test_a_backend_that_is_wrong_without_dropout_is_broken(data_dir: DataDir) -> None:
    wrong = [loss + 0.1 * (step >= 5) for step, loss in enumerate(REHEARSED)]
    parity = parity_of(data_dir, rehearsed=wrong)
    assert parity.verdict == "broken" and parity.first_step_outside is None
    assert "without dropout the loss leaves the band at step 5" in str(parity_words(parity))


def test_a_dropout_that_drops_twice_as_many_is_broken_and_named(data_dir: DataDir) -> None:
    parity = parity_of(data_dir, shares=(0.1, 0.2))
    assert parity.verdict == "broken"
    assert str(parity_words(parity)).endswith(
        ", but dropout 2 of 2 (p = 0.1) drops 20.0 % instead of 10.0 %"
    )


def test_steps_in_another_direction_are_broken(data_dir: DataDir) -> None:
    parity = parity_of(data_dir, shift=100.0)
    assert parity.verdict == "broken"
    assert "change the weights in another direction" in str(parity_words(parity))


def test_a_training_that_learned_nothing_may_owe_that_to_its_random_numbers(
    data_dir: DataDir,
) -> None:
    # The baseline's loss falls from 2 to 1.
    parity = parity_of(data_dir, offset=1.5)
    assert parity.verdict == "unknown"
    assert "while it is not known how far other random numbers alone" in str(parity_words(parity))
    assert parity_of(data_dir, offset=-1.5).verdict == "unknown", "it learned more"


def test_a_loss_worse_than_nothing_by_as_much_as_was_learned_is_broken(data_dir: DataDir) -> None:
    # Evenly from 2 to 1: the first five have a mean of 2 - 2/79, the last eight of 1 + 3.5/79.
    parity = parity_of(data_dir, offset=15.0)
    assert parity.verdict == "broken"
    words = str(parity_words(parity))
    assert words.startswith("it draws other random numbers than are drawn without a compiler; ")
    assert words.endswith("which is higher by more than 2 times all that was learned (1.861)"), (
        words
    )


def test_a_loss_that_is_off_by_a_third_of_what_was_learned_is_not_called_the_same(
    data_dir: DataDir,
) -> None:
    parity = parity_of(data_dir, offset=0.33)
    assert parity.verdict == "unknown"
    assert str(parity_words(parity)).endswith("repeat it without dropout (model.dropout = off)")


def test_losses_that_agree_at_first_are_judged_by_the_band(data_dir: DataDir) -> None:
    # 1e-3 is a tenth of a percent of what other numbers make of a loss, 0.4, and outside the band.
    parity = parity_of(data_dir, offset=1e-3)
    assert parity.verdict == "broken" and parity.first_step_outside == 0


def test_a_rehearsal_hardly_outside_its_band_leaves_it_unknown(data_dir: DataDir) -> None:
    # The control is off by 2e-5 at step 0, so the band is 2e-4 wide on either side.
    hardly = [*REHEARSED[:5], REHEARSED[5] + 3e-4, *REHEARSED[6:]]
    parity = parity_of(data_dir, rehearsed=hardly)
    assert parity.verdict == "unknown" == parity_text(parity)
    assert "without dropout the loss leaves the band at step 5 and is up to 1.5 x the band" in str(
        parity_words(parity)
    )
    # A dropout that is wrong breaks it all the same.
    assert parity_of(data_dir, rehearsed=hardly, shares=(0.1, 0.2)).verdict == "broken"


def test_the_same_numbers_in_rehearsal_excuse_no_wrong_arithmetic(data_dir: DataDir) -> None:
    wrong = [loss + 0.1 for loss in REHEARSED]
    parity = parity_of(data_dir, rehearsed=wrong, shares=(0.1, 0.1))
    assert parity.verdict == "broken" and parity.first_step_outside == 0
    assert "without dropout" not in str(parity_words(parity))


def test_random_numbers_in_inference_are_broken_whatever_training_says(data_dir: DataDir) -> None:
    parity = parity_of(data_dir, offset=0.0, same=True, inference_draws=True)
    assert parity.verdict == "broken"
    assert "answered differently each time" in str(parity_words(parity))


def test_without_a_rehearsal_parity_is_unknown(data_dir: DataDir) -> None:
    record_experiment(data_dir.runs, SPEC, backend_offset=0.2)
    log = EventLog(data_dir.run_dir(f"{EXPERIMENT_ID}.inductor").events_file)
    log.append("random_numbers", same=False, num_draws=12, loss_by_draw=[1.0, 2.0, 1.0, 2.0])
    log.append("rehearsal", reason="it draws more than dropout does")
    log.close()
    with Store.in_memory(data_dir) as store:
        (parity,) = [one.parity for one in compare(store, EXPERIMENT_ID).results if one.parity]
    assert parity.verdict == "unknown"
    assert "no step without them could be compared" in str(parity_words(parity))


def unasked(
    data_dir: DataDir, device_type: str, offset: float, spec: ExperimentSpec = SPEC
) -> Parity:
    """Of a backend whose losses lie `offset` beside the baseline's, and of whose random numbers
    nothing is recorded, or not yet."""
    told = {"device_type": device_type, "device_name": "any"}
    record_experiment(data_dir.runs, spec, backend_offset=offset, environment=told)
    with Store.in_memory(data_dir) as store:
        (found,) = [one.parity for one in compare(store, EXPERIMENT_ID).results if one.parity]
    return found


def test_on_a_gpu_losses_that_other_random_numbers_explain_are_left_open_until_that_is_asked(
    data_dir: DataDir,
) -> None:
    parity = unasked(data_dir, "cuda", 0.2)
    assert parity.verdict == "unknown" == parity_text(parity)
    assert "this run has no such test" in str(parity_words(parity))


def test_on_the_cpu_compilers_draw_the_same_numbers_and_explain_nothing_by_them(
    data_dir: DataDir,
) -> None:
    assert unasked(data_dir, "cpu", 0.2).verdict == "broken"


def test_on_a_gpu_what_no_random_numbers_explain_is_broken_at_once(data_dir: DataDir) -> None:
    # The baseline's loss falls from 2 to 1.
    assert unasked(data_dir, "cuda", 1.5).verdict == "unknown", "it learned nothing"
    parity = unasked(data_dir, "cuda", 2.5)
    assert parity.verdict == "broken"
    assert "higher by more than 2 times all that was learned" in str(parity_words(parity))


def test_on_a_gpu_a_loss_that_is_not_finite_is_broken_at_once(data_dir: DataDir) -> None:
    assert unasked(data_dir, "cuda", math.nan).verdict == "broken"


def test_on_a_gpu_no_random_numbers_are_to_blame_without_dropout(data_dir: DataDir) -> None:
    without = experiment_spec(80, model=ModelSpec(dropout="off"))
    assert unasked(data_dir, "cuda", 0.2, without).verdict == "broken"


def test_where_random_numbers_are_not_asked_for_they_leave_losses_open_on_the_cpu_too(
    data_dir: DataDir,
) -> None:
    spec = experiment_spec(80, model=ModelSpec(dropout="keep"), scenario="speed")
    assert unasked(data_dir, "cpu", 0.2, spec).verdict == "unknown"
