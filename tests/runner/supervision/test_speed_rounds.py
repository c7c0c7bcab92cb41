"""The scenario `speed` under a supervisor: who decides that it is enough, and repeats."""

from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import experiments, find_experiment, submit
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec, TrainingSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.commands import exit_status
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import warnings_of
from tests.helpers.loop import FAULTS, NET
from tests.runner.supervision import test_supervisor as fake
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy


def experiment(*backends: str, controls: int = 0, repeats: int = 1, **speed: Any) -> ExperimentSpec:
    """Blocks of 2 steps, 1 warm-up block, 6 to 15 rounds."""
    fields = {"batches": 2, "warm_up_blocks": 1, "min_rounds": 6, "max_rounds": 15, **speed}
    return fake.experiment(
        *backends,
        steps=20,
        scenario="speed",
        block_steps=2,
        controls=controls,
        speed=SpeedSpec(repeats=repeats, **fields),
    )


def raced(data_dir: DataDir, spec: ExperimentSpec) -> dict[str, RunDir]:
    """The runs by label, after the race."""
    experiment_id = submit(data_dir, spec)
    supervise(data_dir, fake.FAKE_WORKER)
    return fake.run_dirs(data_dir, experiment_id)


def rounds(run: RunDir) -> list[int]:
    return [block["round"] for block in fake.events(run, "block")]


def reason(run: RunDir) -> str:
    (stopped,) = fake.events(run, "stopped")
    return str(stopped["reason"])


def test_a_race_ends_for_all_in_the_round_after_every_interval_was_narrow_but_of_a_dead_run(
    data_dir: DataDir,
) -> None:
    runs = raced(data_dir, experiment("crash", "eager", controls=1))
    assert runs.pop("crash").state is RunState.FAILED
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    # The fake worker tells no warm-up: 6 rounds are measured, the next one is the last.
    assert {tuple(rounds(run)) for run in runs.values()} == {tuple(range(7))}
    assert {reason(run) for run in runs.values()} == {"every interval is narrower than 2 %"}


def test_without_any_other_run_the_baseline_does_not_measure_on(data_dir: DataDir) -> None:
    runs = raced(data_dir, experiment("crash"))
    assert len(rounds(runs["baseline"])) == 3  # it died in the second
    assert "nothing is left to compare" in reason(runs["baseline"])


def test_one_run_after_another_keeps_to_its_share_of_the_budget(data_dir: DataDir) -> None:
    spec = replace(experiment("eager", max_seconds=0.04), schedule="sequential")
    runs = raced(data_dir, spec)
    # A half of 0.04 s each, at 0.002 s a round.
    assert {len(rounds(run)) for run in runs.values()} == {11}
    assert {reason(run) for run in runs.values()} == {"the budget of 0.02 s is spent"}


def test_repeats_race_one_after_the_other_until_they_are_cancelled(data_dir: DataDir) -> None:
    experiment_id = submit(data_dir, experiment("eager", repeats=3))
    runs = fake.run_dirs(data_dir, experiment_id)
    assert list(runs)[:4] == ["baseline-1", "eager-1", "baseline-2", "eager-2"]
    for label in ("baseline-3", "eager-3"):
        runs[label].request_cancel()
    supervise(data_dir, fake.FAKE_WORKER)
    ends = [RunState.FINISHED] * 4 + [RunState.CANCELLED] * 2
    assert [run.state for run in runs.values()] == ends
    assert rounds(runs["eager-1"]) == list(range(7))
    assert rounds(runs["eager-2"]) == rounds(runs["baseline-2"]) == list(range(7, 14))
    ended, claim = runs["eager-1"].read_exit(), runs["eager-2"].read_claim()
    assert ended is not None and claim is not None and ended.time <= claim.time
    assert [runs[f"eager-{number}"].read_spec().arm.repeat for number in (1, 2)] == [1, 2]


@pytest.mark.slow
def test_repeats_that_do_not_fit_together_are_not_tried_again_and_again(data_dir: DataDir) -> None:
    runs = raced(data_dir, experiment("greedy", repeats=2))
    assert runs["greedy-1"].state is RunState.OUT_OF_MEMORY
    assert {runs[label].state for label in ("baseline-2", "greedy-2")} == {RunState.CANCELLED}
    _, repeat = experiments(data_dir)
    assert repeat.spec.schedule == "sequential"
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="must be at least 6"):  # fewer rounds have no interval
        experiment("eager", min_rounds=5)
    with pytest.raises(InvalidSpec, match=r"must not be below speed\.min_rounds"):
        experiment("eager", max_rounds=8, min_rounds=9)


def test_every_repeat_has_runs_of_its_own_and_steps_for_warm_up_and_rounds() -> None:
    spec = experiment("eager", controls=1, repeats=2)
    labels = ["baseline-1", "control-1", "eager-1", "baseline-2", "control-2", "eager-2"]
    assert [arm.label for arm in spec.arms] == labels
    assert spec.repeats_by_label["eager"] == ("eager-1", "eager-2")
    assert spec.num_steps == 2 * (1 + 15) and spec.evaluates == "never"
    assert ExperimentSpec.from_json(spec.to_json()) == spec


@pytest.mark.slow
def test_a_speed_experiment_from_submission_to_verdict(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    changes = {**NET, "data": replace(NET["data"], num_train_samples=8, num_eval_samples=2)}
    speed = SpeedSpec(part="inference", batches=2, min_rounds=6, max_rounds=8, target_width=1e-6)
    spec = replace(
        experiment("eager"),
        **changes,
        speed=speed,
        cpu_threads=1,
        training=TrainingSpec(batch_size=2),
    )
    experiment_id = submit(data_dir, spec)
    supervise(data_dir)
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, experiment_id)
    assert {run.state for run in find_experiment(data_dir, experiment_id).runs} == {
        RunState.FINISHED
    }
    _, eager = comparison.results
    assert eager.speedup is not None and eager.speedup.n == 8
    assert eager.measured.compile_seconds is not None and eager.measured.compile_seconds > 0
    assert eager.parity is None and eager.measured.final_loss is None
    said = " ".join(warnings_of(comparison))
    assert "Measuring ended after 8 rounds: the budget of 8 rounds is spent." in said
    assert "Intervals are wider than the requested 0.0 %: eager" in said
    assert exit_status(comparison) == 0
