"""The scenario `speed` under a supervisor: who decides that it is enough, and repeats."""

from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.queue import cancel, experiments, find_experiment, submit
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, SpeedSpec, TrainingSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.commands import exit_status
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import warnings_of
from tests.helpers.fake_worker import COMMAND as FAKE_WORKER
from tests.helpers.loop import FAULTS, NET
from tests.runner.supervision.supervised import impatience as impatience

pytestmark = pytest.mark.heavy


def experiment(*backends: str, **speed: float) -> ExperimentSpec:
    """Blocks of 2 steps, 1 warm-up block, 6 to 15 rounds."""
    fields = {"batches": 2, "warm_up_blocks": 1, "min_rounds": 6, "max_rounds": 15, **speed}
    return ExperimentSpec(
        name="trial",
        scenario="speed",
        backends=backends,
        data=DataSpec(num_train_samples=20),
        training=TrainingSpec(batch_size=1),
        block_steps=2,
        speed=SpeedSpec(**fields),  # type: ignore[arg-type]
    )


def raced(data_dir: DataDir, spec: ExperimentSpec) -> dict[str, RunDir]:
    """The runs by label, after the race."""
    experiment_id = submit(data_dir, spec)
    supervise(data_dir, FAKE_WORKER)
    runs = find_experiment(data_dir, experiment_id).runs
    return {run.run_id.partition(".")[2]: run for run in runs}


def of_kind(run: RunDir, kind: str) -> list[dict[str, object]]:
    return [event for event in read_events(run.events_file)[0] if event["kind"] == kind]


def rounds(run: RunDir) -> list[object]:
    return [block["round"] for block in of_kind(run, "block")]


def reason(run: RunDir) -> object:
    (stopped,) = of_kind(run, "stopped")
    return stopped["reason"]


def test_a_race_ends_for_all_in_the_round_after_every_interval_was_narrow_but_of_a_dead_run(
    data_dir: DataDir,
) -> None:
    runs = raced(data_dir, experiment("crash", "eager"))
    assert runs.pop("crash").state is RunState.FAILED
    assert {run.state for run in runs.values()} == {RunState.FINISHED}
    # The fake worker tells no warm-up: 6 rounds are measured, the next one is the last.
    assert {tuple(rounds(run)) for run in runs.values()} == {tuple(range(7))}
    assert {reason(run) for run in runs.values()} == {"every interval is narrower than 2 %"}


def test_without_any_other_run_the_baseline_does_not_measure_on(data_dir: DataDir) -> None:
    runs = raced(data_dir, replace(experiment("crash"), controls=0))
    assert len(rounds(runs["baseline"])) == 3  # it died in the second
    assert "nothing is left to compare" in str(reason(runs["baseline"]))


def test_one_run_after_another_keeps_to_its_share_of_the_budget(data_dir: DataDir) -> None:
    spec = replace(experiment("eager", max_seconds=0.06), schedule="sequential")
    runs = raced(data_dir, spec)
    # A third of 0.06 s each, at 0.002 s a round.
    assert {len(rounds(run)) for run in runs.values()} == {11}
    assert {reason(run) for run in runs.values()} == {"the budget of 0.02 s is spent"}


def test_repeats_race_one_after_the_other_in_rounds_of_their_own(data_dir: DataDir) -> None:
    runs = raced(data_dir, replace(experiment("eager", repeats=2), controls=0))
    assert list(runs) == ["baseline-1", "eager-1", "baseline-2", "eager-2"]
    assert rounds(runs["eager-1"]) == list(range(7))
    assert rounds(runs["eager-2"]) == rounds(runs["baseline-2"]) == list(range(7, 14))
    first, second = (runs[f"eager-{repeat}"] for repeat in (1, 2))
    ended, claim = first.read_exit(), second.read_claim()
    assert ended is not None and claim is not None and ended.time <= claim.time
    assert first.read_spec().variant.repeat == 1 and second.read_spec().variant.repeat == 2


def test_repeats_that_do_not_fit_together_are_not_tried_again_and_again(data_dir: DataDir) -> None:
    runs = raced(data_dir, replace(experiment("greedy", repeats=2), controls=0))
    assert runs["greedy-1"].state is RunState.OUT_OF_MEMORY
    assert {runs[label].state for label in ("baseline-2", "greedy-2")} == {RunState.CANCELLED}
    _, repeat = experiments(data_dir)
    assert repeat.spec.schedule == "sequential"
    assert {run.state for run in repeat.runs} == {RunState.FINISHED}


def test_cancelling_ends_the_repeats_that_have_not_begun(data_dir: DataDir) -> None:
    spec = replace(experiment("eager", repeats=2), controls=0)
    found = find_experiment(data_dir, submit(data_dir, spec))
    for run in found.runs[2:]:
        run.request_cancel()
    supervise(data_dir, FAKE_WORKER)
    assert [run.state for run in found.runs] == [RunState.FINISHED] * 2 + [RunState.CANCELLED] * 2
    cancel(found)  # nothing is left to stop
    assert [run.cancel_requested for run in found.runs] == [False] * 2 + [True] * 2


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"batches": 0}, "speed.batches"),
        ({"batches": 21}, "must be at most 20"),
        ({"warm_up_blocks": 0}, "speed.warm_up_blocks"),
        ({"target_width": 0.0}, "must be above 0"),
        ({"max_seconds": 0.0}, "must be above 0"),
        ({"min_rounds": 5}, "must be at least 6"),  # fewer rounds have no interval
        ({"max_rounds": 8, "min_rounds": 9}, "must not be below speed.min_rounds"),
        ({"repeats": 0}, "must be at least 1"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidSpec, match=said):
        experiment("eager", **changes)


def test_a_control_belongs_to_speed_and_the_journal_is_where_decisions_stand(
    data_dir: DataDir, tmp_path: Path
) -> None:
    spec = experiment("eager")
    assert [variant.label for variant in spec.variants] == ["baseline", "control", "eager"]
    assert spec.repeats_by_label == {label: (label,) for label in ("baseline", "control", "eager")}
    twice = experiment("eager", repeats=2)
    assert twice.repeats_by_label["eager"] == ("eager-1", "eager-2")
    assert spec.num_steps == 2 * (1 + 15) and spec.evaluates == "never"
    assert ExperimentSpec.from_json(twice.to_json()) == twice


def test_a_speed_experiment_from_submission_to_verdict(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CODE_VARIABLE, str(FAULTS))
    spec = ExperimentSpec(
        name="trial",
        scenario="speed",
        backends=("eager",),
        controls=0,
        task="custom",
        model=NET["model"],
        data=replace(NET["data"], num_train_samples=8, num_eval_samples=2),
        training=TrainingSpec(batch_size=2),
        cpu_threads=1,
        block_steps=2,
        speed=SpeedSpec(part="inference", batches=2, min_rounds=6, max_rounds=8, target_width=1e-6),
    )
    experiment_id = submit(data_dir, spec)
    supervise(data_dir)
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, experiment_id)
    _, eager = comparison.results
    assert [result.state for result in comparison.results] == ["finished", "finished"]
    assert eager.speedup is not None and eager.speedup.n == 8
    assert eager.measured.compile_seconds is not None and eager.measured.compile_seconds > 0
    assert eager.parity is None and eager.measured.final_loss is None
    said = " ".join(warnings_of(comparison))
    assert "Measuring ended after 8 rounds: the budget of 8 rounds is spent." in said
    assert "Intervals are wider than the requested 0.0 %: eager" in said
    assert exit_status(comparison) == 0
