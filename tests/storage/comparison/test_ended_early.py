"""A run that ended early has no verdict but that, unless enough of it was measured."""

import math
from dataclasses import replace

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.compiling.ladder import find_ladder
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import explain
from breakeven.storage.terminal.gate import unfinished
from breakeven.storage.terminal.report import explain_report, report
from breakeven.storage.words.parity import parity_words
from tests.helpers.comparisons import compared, warnings_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy
SPEC = experiment_spec(num_steps=100)
SCRIPT = ExperimentSpec(
    name="mine",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    backends=("inductor",),
    block_steps=10,
)
LOSSES = falling_losses(100)
WHY = "ValueError: no label 11"


def record(
    data_dir: DataDir,
    label: str,
    steps: int = 100,
    state: RunState = RunState.FINISHED,
    spec: ExperimentSpec = SPEC,
    losses: list[float] | None = None,
) -> None:
    """Steps of 0.2 s in blocks of 10, those of inductor of 0.1; the first block never counts."""
    run = Recording(data_dir.runs, label, spec).claim()
    run.start(num_steps=spec.num_steps or (100 if steps == 100 else None))
    losses = [loss + 1e-5 * (label.startswith("inductor")) for loss in (losses or LOSSES)[:steps]]
    seconds = 0.1 if label.startswith("inductor") else 0.2
    run.blocks([seconds] * (steps // 10), losses, 3.0 if label.startswith("inductor") else 0.0)
    if state is RunState.FAILED:
        run.log.append("error", error="ValueError", message="no label 11", traceback="")
    run.end(state, "over" if state is RunState.FINISHED else "it was ended")


def ended(data_dir: DataDir, spec: ExperimentSpec = SPEC, **failed: int) -> Comparison:
    """All runs of an experiment, some of which failed after so many steps."""
    for label in (arm.label for arm in spec.arms):
        state = RunState.FAILED if label in failed else RunState.FINISHED
        record(data_dir, label, failed.get(label, 100), state, spec)
    return compared(data_dir)


def warning_of(comparison: Comparison, label: str) -> str:
    (warning,) = (line for line in warnings_of(comparison) if line.startswith(f"{label} "))
    return warning


def why(result: Result) -> str:
    return str(parity_words(result.parity))


def test_a_script_that_raises_has_failed_and_nothing_else(data_dir: DataDir) -> None:
    for label in ("baseline", "control", "inductor"):
        record(data_dir, label, 20, RunState.FAILED, SCRIPT, losses=[2.3] * 20)  # no learning
    comparison = compared(data_dir)
    result = comparison.results[-1]
    assert (result.value("speed_verdict"), result.value("parity")) == ("failed", "failed")
    assert (result.speedup, result.break_even, result.break_even_verdict) == (None, None, None)
    assert warning_of(comparison, "inductor") == (
        f"inductor failed at step 20: {WHY}. Too little was measured before to judge its speed."
    )
    assert warning_of(comparison, "baseline") == (
        f"baseline failed at step 20: {WHY}. Nothing can be compared with it."
    )
    text = report(comparison) + "\n".join(unfinished(comparison))
    for untrue in ("20 of 20", "of 0 steps", "rain for more steps", "train longer", "matches"):
        assert untrue not in text


def test_a_finished_run_tells_how_many_steps_a_script_makes(data_dir: DataDir) -> None:
    record(data_dir, "baseline", spec=SCRIPT)
    record(data_dir, "inductor", 20, RunState.FAILED, SCRIPT)
    run = Recording(data_dir.runs, "control", SCRIPT).claim().start(samples_per_step=None)
    run.end(RunState.FAILED, "exit status 1")
    comparison = compared(data_dir)
    warning = warning_of(comparison, "inductor")
    assert warning.startswith(f"inductor failed at step 20 of 100: {WHY}.")
    # A run without a step differs in no sample size.
    assert not any("differ in samples" in line for line in warnings_of(comparison))


FEW: tuple[tuple[RunState, str, str], ...] = (
    (RunState.FAILED, "failed", f"failed at step 20 of 100: {WHY}."),
    (RunState.CANCELLED, "cancelled", "was stopped at step 20 of 100: it was ended."),
    (RunState.TIMEOUT, "failed", "was stopped by its time limit at step 20 of 100: it "),
    (RunState.OUT_OF_MEMORY, "failed", "ran out of memory at step 20 of 100: it was ended."),
    (RunState.LOST, "failed", "was lost at step 20 of 100: it was ended."),
)
"""How backends ended after too few rounds."""
MANY = (
    # The first block never counts: of 8 blocks 7 do, of 10 blocks 9.
    (80, "before, in 7 rounds", "at step 80 of 100"),
    (100, "completely, in 9 rounds", "after the last of its 100 steps"),
)
"""When backends failed that had done enough."""


def test_however_a_run_ended_early_only_a_measured_speed_stands(data_dir: DataDir) -> None:
    count = len(FEW) + len(MANY) + 1
    spec = replace(SPEC, backends=tuple(f"inductor:case={number}" for number in range(count)))
    labels = [f"inductor-case_{number}" for number in range(count)]
    for label in ("baseline", "control"):
        record(data_dir, label, spec=spec)
    for label, (state, *_) in zip(labels, FEW, strict=False):
        record(data_dir, label, 20, state, spec)
    for label, (steps, *_) in zip(labels[len(FEW) :], MANY, strict=False):
        record(data_dir, label, steps, RunState.FAILED, spec)
    run = Recording(data_dir.runs, labels[-1], spec).claim().start()
    run.blocks([0.1] * 4, [loss + 3 * (step > 5) for step, loss in enumerate(LOSSES[:40])])
    run.end(RunState.FAILED, "exit status 1")
    comparison = compared(data_dir)
    assert not any("Train for more" in line for line in warnings_of(comparison))
    for label, (_, verdict, ended) in zip(labels, FEW, strict=False):
        result = comparison.result_of(label)
        assert (result.speed_verdict, result.speedup, result.break_even) == (verdict, None, None)
        assert result.parity.verdict == verdict
        assert warning_of(comparison, label).startswith(f"{label} {ended}")
    for label, (_, said, at) in zip(labels[len(FEW) :], MANY, strict=False):
        result = comparison.result_of(label)
        assert result.speedup.median == pytest.approx(2)
        assert result.speed_verdict == "faster"
        warning = warning_of(comparison, label)
        assert warning == f"{label} failed {at}: {WHY}. Its speed was measured {said}."
        assert result.parity.verdict == "failed"
        assert why(result).startswith("the loss stays within ")
        assert why(result).endswith(f"it failed {at}")
    parity = comparison.result_of(labels[-1]).parity  # Its fault showed before it failed.
    assert (parity.verdict, parity.first_step_outside) == ("broken", 6)


@pytest.mark.parametrize(
    ("cut", "diverges"),
    [("control", False), ("inductor", False), ("baseline", True), ("control", True)],
)
def test_a_cut_journal_shows_no_parity(data_dir: DataDir, cut: str, diverges: bool) -> None:
    """A disk or a copy may lose the end of a journal whose run has finished. Where the baseline or
    the control diverges, the backend goes to 17, and nothing is there to compare it with."""

    changed = {cut: LOSSES[:60] + [math.nan] * 40, "inductor": LOSSES[:65] + [17.0] * 35}
    for label in ("baseline", "control", "inductor"):
        steps = 60 if label == cut and not diverges else 100
        record(data_dir, label, steps, losses=changed.get(label) if diverges else LOSSES)
    result = compared(data_dir).results[-1]
    assert result.parity.verdict == "unknown"
    assert why(result).endswith("has its last finite loss at step 60 of 100")


@pytest.mark.parametrize(("failed", "speed"), [("baseline", "unsure"), ("control", "faster")])
def test_nothing_matches_a_run_that_failed(data_dir: DataDir, failed: str, speed: str) -> None:
    comparison = ended(data_dir, **{failed: 40})
    result = comparison.results[-1]
    assert result.speed_verdict == speed
    assert (result.speedup is None, result.break_even is None) == (speed == "unsure",) * 2
    assert result.parity.verdict == "unknown"
    assert why(result).endswith(f"but the {failed} failed at step 40 of 100")
    assert not any("Train for more" in line for line in warnings_of(comparison))


def test_a_fault_of_the_baseline_fails_no_stage(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=100, backends=("eager", "aot_eager"), controls=0)
    ended(data_dir, spec, baseline=20, eager=20, aot_eager=20)
    with Store.in_memory(data_dir) as store:
        assert find_ladder(store, EXPERIMENT_ID) is None
        text = explain_report(explain(store, EXPERIMENT_ID))
    assert "all runs ended before their profile" in text
    assert "older version" not in text and "--profile-steps" not in text


def test_a_baseline_that_failed_late_still_gives_a_speed(data_dir: DataDir) -> None:
    comparison = ended(data_dir, baseline=80)
    assert comparison.results[-1].speed_verdict == "faster"
    assert warning_of(comparison, "baseline").endswith(
        f"{WHY}. The other runs are compared with its rounds before that."
    )


def test_of_several_controls_those_count_that_came_to_their_end(data_dir: DataDir) -> None:
    comparison = ended(data_dir, experiment_spec(num_steps=100, controls=2), control=40)
    assert comparison.results[-1].parity.verdict == "holds"
    with Store.in_memory(data_dir) as store:
        assert compare(store, EXPERIMENT_ID).band["step"].max() > 40


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"profile_steps": 0}, "the experiment has --profile-steps=0"), ({}, "an older version")],
)
def test_a_missing_profile_is_named(data_dir: DataDir, changes: dict[str, int], said: str) -> None:
    record(data_dir, "baseline", spec=experiment_spec(num_steps=100, **changes))
    with Store.in_memory(data_dir) as store:
        assert said in explain_report(explain(store, EXPERIMENT_ID))
