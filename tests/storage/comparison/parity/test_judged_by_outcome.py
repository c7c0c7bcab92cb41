"""Which runs are judged by their outcome, and what passes for as good."""

import math
import os
from collections.abc import Callable
from typing import Any

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.commands import exit_status
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from breakeven.storage.words.parity import parity_words
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

STEPS = 200
TF32 = "none-tf32_true"
Change = Callable[[int, float], float | None]
"""The loss of an arm at a step, from that of the baseline."""


def recorded(
    data_dir: DataDir,
    change: Change,
    *,
    steps: int = STEPS,
    state: RunState = RunState.FINISHED,
    losses: list[float] | None = None,
    workload: dict[str, Any] | None = None,
    backend: str = "none:tf32=true",
    **fields: Any,
) -> Comparison:
    """A training whose loss falls from 2 to 1; the control's are 1e-5 higher. `change`, `steps`,
    `state` and `workload` are those of the arm."""
    spec = experiment_spec(num_steps=STEPS, backends=(backend,), **fields)
    equal = falling_losses(STEPS) if losses is None else losses
    for arm in spec.arms:
        is_arm = arm.role == "backend"
        own = [change(step, loss) for step, loss in enumerate(equal[:steps])] if is_arm else equal
        if arm.role == "control":
            own = [loss + 1e-5 for loss in equal]
        run = Recording(data_dir.runs, arm.label, spec).claim()
        run.start(**((workload or {}) if is_arm else {}))
        for first in range(0, len(own), 10):
            run.block([0.2] * 10, own[first : first + 10])
        if is_arm and state is RunState.RUNNING:
            run.claim(ProcessIdentity.from_pid(os.getpid()))
        else:
            run.end(state if is_arm else RunState.FINISHED)
    with Store.in_memory(data_dir) as store:
        return compare(store, EXPERIMENT_ID)


def parity_of(comparison: Comparison) -> Parity:
    parity = comparison.results[-1].parity
    assert parity is not None
    return parity


def diverged(step: int, loss: float) -> float:
    return loss if step < 150 else 17.0


def late_nan(step: int, loss: float) -> float:
    return loss + 0.001 if step < 195 else math.nan


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        (lambda step, loss: loss, "holds", "the loss stays within"),
        # A tenth of the steps ends at a mean of 1.048, of which 1 % is 0.01048.
        (lambda step, loss: loss + 0.009, "as good", "its loss is 1.057 instead of 1.048"),
        (lambda step, loss: loss + 0.011, "not decided", "only 6 controls (--controls 6) show"),
        (lambda step, loss: loss - 0.011, "not decided", "alone does not show that it learns"),
        (lambda step, loss: loss / 2, "not decided", "its first loss is 1 instead of 2"),
        (lambda step, loss: 17.0, "worse", "its first loss is 17 instead of 2"),
        (lambda step, loss: loss + 0.001 + 16 * (step > 150), "worse", "is 17.05 instead of"),
        (late_nan, "broken", "the loss leaves the band at step 0 and is not finite"),
    ],
)
def test_an_arm_that_declares_another_mathematics_is_judged_by_its_outcome(
    data_dir: DataDir, change: Change, verdict: str, said: str
) -> None:
    comparison = recorded(data_dir, change)
    parity = parity_of(comparison)
    assert parity.verdict == verdict
    assert said in str(parity_words(parity))
    assert parity.by_outcome == (verdict not in ("holds", "broken"))
    seems_worse = "only 6 controls" in said
    assert comparison.result_of(TF32).is_wrong == (verdict in ("worse", "broken") or seems_worse)
    statuses = {"worse": 3, "broken": 3, "not decided": 4}
    assert exit_status(comparison) == statuses.get(verdict, 0)


def test_a_loss_that_leaves_its_band_only_after_it_ended_is_a_fault(data_dir: DataDir) -> None:
    """The control leaves the baseline from step 50 on, where the band therefore ends."""
    falls = falling_losses(STEPS)

    def wrong(step: int, loss: float) -> float:
        return loss if step < 120 else 3.0

    spec = experiment_spec(num_steps=STEPS, backends=("none:tf32=true",))
    for arm in spec.arms:
        own = falls
        if arm.role == "control":
            own = [
                loss + (0.03 * (-1) ** step if step >= 50 else 1e-5)
                for step, loss in enumerate(falls)
            ]
        if arm.role == "backend":
            own = [wrong(step, loss) for step, loss in enumerate(falls)]
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        run.blocks([0.2] * (STEPS // 10), own).end()
    with Store.in_memory(data_dir) as store:
        parity = parity_of(compare(store, EXPERIMENT_ID))
    assert (parity.verdict, parity.by_outcome) == ("broken", False)


@pytest.mark.parametrize(
    ("fields", "verdict", "by_outcome"),
    [
        ({"same": "steps"}, "broken", False),
        ({"backend": "inductor"}, "broken", False),  # It should compute the same.
        ({"backend": "inductor", "same": "outcome"}, "as good", True),
        ({"margin": "0.5%"}, "not decided", True),
        ({"margin": "0.5%", "controls": 6}, "worse", True),
        ({"margin": "0.5%", "controls": 0}, "unknown", False),
        ({"controls": 0, "same": "outcome"}, "not decided", True),
    ],
)
def test_which_question_is_asked(
    data_dir: DataDir, fields: dict[str, Any], verdict: str, by_outcome: bool
) -> None:
    """The loss is higher by 0.006, between half a percent and a percent of the last one; its
    interval is 0 wide, as no two losses vary."""
    parity = parity_of(recorded(data_dir, lambda step, loss: loss + 0.006, **fields))
    assert (parity.verdict, parity.by_outcome) == (verdict, by_outcome)


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ({"num_parameters": 7, "weights_sha256": "other"}, "it trains another model, with 7"),
        ({"weights_sha256": "other"}, "its initial weights are not the baseline's"),
        ({"data_sha256": "other"}, "its first samples are not the baseline's"),
    ],
)
def test_what_a_training_begins_with_is_said_before_its_outcome(
    data_dir: DataDir, workload: dict[str, Any], said: str
) -> None:
    parity = parity_of(recorded(data_dir, lambda step, loss: loss, workload=workload))
    assert parity.verdict == "as good"
    words = str(parity_words(parity))
    assert words.startswith(said) and "after as many samples as 200 steps" in words


@pytest.mark.parametrize(
    ("steps", "state", "verdict"),
    [
        (180, RunState.FINISHED, "not decided"),
        (200, RunState.RUNNING, "not decided"),
        (180, RunState.FAILED, "failed"),
        (180, RunState.CANCELLED, "cancelled"),
    ],
)
def test_a_training_that_does_not_end_has_no_outcome(
    data_dir: DataDir, steps: int, state: RunState, verdict: str
) -> None:
    comparison = recorded(data_dir, lambda step, loss: loss + 0.001, steps=steps, state=state)
    assert parity_of(comparison).verdict == verdict


def test_an_arm_that_ends_before_the_baseline_has_not_made_the_same_training(
    data_dir: DataDir,
) -> None:
    parity = parity_of(recorded(data_dir, lambda step, loss: loss, steps=180))
    assert (parity.verdict, parity.by_outcome) == ("not decided", True)
    assert "it ended after 180 of the baseline's 200 steps" in str(parity_words(parity))


def test_steps_with_fewer_samples_have_not_learned_from_as_many(data_dir: DataDir) -> None:
    parity = parity_of(
        recorded(data_dir, lambda step, loss: loss + 0.001, workload={"tokens_per_step": 768})
    )
    assert parity.verdict == "not decided"
    assert "it ended after 150 of the baseline's 200 steps" in str(parity_words(parity))


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        (lambda step, loss: loss, {"controls": 0}),
        (lambda step, loss: loss, {"controls": 0, "same": "steps"}),
        (lambda step, loss: loss, {"losses": [2.0] * STEPS}),  # Nothing was learned.
        (lambda step, loss: None, {}),
        (lambda step, loss: loss, {"steps": 90}),  # It ends by itself.
    ],
)
def test_what_declares_another_mathematics_is_open_until_it_is_shown_to_be_as_good(
    data_dir: DataDir, change: Change, fields: dict[str, Any]
) -> None:
    assert recorded(data_dir, change, **fields).results[-1].has_open_outcome


def test_a_compiler_of_which_nothing_is_known_makes_no_other_training(data_dir: DataDir) -> None:
    compiled = recorded(data_dir, lambda step, loss: loss, controls=0, backend="inductor")
    assert parity_of(compiled).verdict == "unknown"
    assert not compiled.results[-1].has_open_outcome


def test_nothing_is_as_good_as_a_training_that_learned_nothing(data_dir: DataDir) -> None:
    parity = parity_of(recorded(data_dir, lambda step, loss: loss + 0.001, losses=[2.0] * STEPS))
    assert parity.verdict == "nothing learned"


def evaluated(
    data_dir: DataDir,
    *,
    shift: float = 0.0,
    first: float = 0.001,
    weights: str | None = None,
    own: dict[str, Any] | None = None,
) -> Parity:
    """The parity of an arm whose last evaluation is 0.1 better than the others' of 1.0. Its
    training losses differ by `shift`, the first one by `first`; `own`: of its evaluation."""
    spec = experiment_spec(num_steps=STEPS, backends=("none:tf32=true",))
    falls = falling_losses(STEPS)
    for arm in spec.arms:
        is_arm = arm.role == "backend"
        losses = [loss + shift * is_arm for loss in falls]
        if is_arm:
            losses[0] = falls[0] + first
        if arm.role == "control":
            losses = [loss + 1e-5 for loss in falls]
        run = Recording(data_dir.runs, arm.label, spec).claim()
        run.start(**({"weights_sha256": weights} if weights and is_arm else {}))
        run.blocks([0.2] * (STEPS // 10), losses)
        fields = {"num_samples": 10_000, "inputs_sha256": "of all"}
        run.evaluation(
            None, loss=0.9 if is_arm else 1.0, **(fields | own if is_arm and own else fields)
        )
        run.end()
    with Store.in_memory(data_dir) as store:
        return parity_of(compare(store, EXPERIMENT_ID))


@pytest.mark.parametrize(
    ("changes", "verdict", "said"),
    [
        ({"first": 0.0}, "better", "its evaluation loss is 0.9000 instead of 1"),
        ({"first": 0.0, "own": {"inputs_sha256": None}}, "better", "instead of 1"),
        ({"first": 0.001}, "not decided", "its first loss is 2.001 instead of 2: its model"),
        ({"first": 0.0, "shift": 0.001}, "not decided", "its training loss at the end is"),
        ({"first": 0.0, "own": {"inputs_sha256": "x"}}, "not decided", "had other samples"),
        ({"first": 0.0, "own": {"num_samples": 5_000}}, "not decided", "had other samples"),
        ({"first": -0.5, "weights": "other"}, "not decided", "before any update: it was trained"),
        ({"first": 0.001, "weights": "other"}, "better", "its initial weights are not"),
    ],
)
def test_what_an_arm_reports_of_itself_does_not_show_that_it_is_better(
    data_dir: DataDir, changes: dict[str, Any], verdict: str, said: str
) -> None:
    """An evaluation that is better by a tenth, beside training losses that are lower by 0.05."""
    parity = evaluated(data_dir, **{"shift": -0.05, **changes})
    assert parity.verdict == verdict, str(parity_words(parity))
    assert said in str(parity_words(parity))


@pytest.mark.parametrize(
    ("backend", "higher", "verdict"),
    [
        ("none:tf32=true", 0.06, "not decided"),  # It seems worse.
        ("none:tf32=true", 0.005, "holds"),
        ("inductor", 0.06, "holds"),  # It declares no other mathematics.
    ],
)
def test_a_band_as_wide_as_much_noise_hides_no_worse_outcome(
    data_dir: DataDir, backend: str, higher: float, verdict: str
) -> None:
    """The control strays by 0.01 in turns, so the band is 0.1 wide; the margin is 0.01."""
    spec = experiment_spec(num_steps=STEPS, backends=(backend,))
    for arm in spec.arms:
        strays = 0.01 * (arm.role == "control")
        excess = higher * (arm.role == "backend")
        own = [
            loss + strays * (-1) ** step + excess for step, loss in enumerate(falling_losses(STEPS))
        ]
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        run.blocks([0.2] * (STEPS // 10), own).end()
    with Store.in_memory(data_dir) as store:
        result = compare(store, EXPERIMENT_ID).results[-1]
    assert result.parity is not None and result.parity.verdict == verdict
    assert result.is_wrong == (verdict == "not decided")
