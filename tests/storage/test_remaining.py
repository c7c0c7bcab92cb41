"""How long an experiment still takes, worked out by hand."""

from dataclasses import replace

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    ScriptSpec,
    TrainingSpec,
)
from breakeven.storage.index.store import Store
from breakeven.storage.remaining import (
    Costs,
    RunCosts,
    costs_of,
    earlier_costs,
    expected_seconds,
    remaining_seconds,
)
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, record_experiment

# 100 steps of 10 samples; evaluated on 50 samples after 50 and after 100 of them.
SPEC = ExperimentSpec(
    name="now",
    controls=0,
    data=DataSpec(num_train_samples=1000, num_eval_samples=50),
    training=TrainingSpec(batch_size=10),
    evaluation=EvaluationSpec(when="steps", every=50),
)
EARLIER = Costs(
    name="before",
    spec=SPEC,
    runs=(
        RunCosts(
            label="baseline",
            role="baseline",
            state="finished",
            started=0.0,
            first_turn=8.0,
            worked_until=68.0,
            ended=70.0,
            steps=100,
            seconds_of_steps=20.0,
            step_seconds=0.2,
            evaluations=2,
            seconds_of_evaluations=2.0,
            evaluation_seconds=1.0,
        ),
        RunCosts(
            label="inductor",
            role="backend",
            state="finished",
            started=0.0,
            first_turn=8.0,
            worked_until=68.0,
            ended=70.0,
            steps=100,
            seconds_of_steps=30.0,
            step_seconds=0.1,
            compile_seconds=20.0,
            evaluations=2,
            seconds_of_evaluations=8.0,
            evaluation_seconds=1.0,
            compiled_evaluations=2,
            first_compiled_evaluation_seconds=5.5,
            compiled_evaluation_seconds=0.5,
        ),
    ),
)


def running(label: str, steps: int, **known: float) -> RunCosts:
    role = "baseline" if label == "baseline" else "backend"
    return RunCosts(
        label=label,
        role=role,
        state="running",
        started=100.0,
        first_turn=110.0,
        steps=steps,
        **known,
    )  # type: ignore[arg-type]


def now(*runs: RunCosts) -> Costs:
    return Costs(name="now", spec=SPEC, runs=runs)


def test_before_it_begins_all_of_it_is_taken_from_an_earlier_experiment() -> None:
    # 8 s of setting up and 2 s of ending; 100 x 0.2 + 2 x 1 s for the baseline; for inductor
    # 100 x 0.1 s, 20 s of compiling, 5.5 - 0.5 s of compiling for evaluation and 2 x (1 + 1) s: an
    # evaluation under its own backend was not measured here yet, and counts as one without. 60 s of
    # turns for 20 + 2 + 30 + 8 s of work are no overhead.
    assert expected_seconds(SPEC, [EARLIER]) == pytest.approx(8 + 2 + 22 + 39)
    assert expected_seconds(SPEC, []) is None


def test_compiling_that_is_ahead_is_counted_and_what_has_passed_of_it_is_not() -> None:
    baseline = running("baseline", 10, step_seconds=0.2)
    waiting = running("inductor", 0)
    costs = now(baseline, waiting)
    # 90 x 0.2 + 2 x 1; 100 x 0.1 + 20 + 5 + 2 x 2; 2 s of ending.
    assert remaining_seconds(costs, [EARLIER], 120.0) == pytest.approx(20 + 39 + 2)
    left = remaining_seconds(costs, [EARLIER], 120.0, {"inductor": 15.0})
    assert left == pytest.approx(20 + 39 + 2 - 15)
    # It takes longer than expected: a tenth of the 20 s is still to come.
    left = remaining_seconds(costs, [EARLIER], 120.0, {"inductor": 500.0})
    assert left == pytest.approx(20 + 39 + 2 - 18)


def test_what_was_measured_here_outweighs_what_was_measured_earlier() -> None:
    # Half as fast as earlier, by the baseline: inductor's 0.1 s are 0.2 s here.
    costs = now(
        running("baseline", 100, step_seconds=0.4, evaluations=2, evaluation_seconds=3.0),
        running("inductor", 0),
    )
    # 100 x 0.2 + 20 + 5 + 2 x (3 + 3) + 2.
    assert remaining_seconds(costs, [EARLIER], 200.0) == pytest.approx(59)
    # Compiling took twice as long here, so it will for evaluation: 5 / 20 of 40 s.
    costs = now(
        running(
            "inductor",
            100,
            step_seconds=0.1,
            compile_seconds=40.0,
            evaluations=2,
            evaluation_seconds=1.0,
        )
    )
    assert remaining_seconds(costs, [EARLIER], 200.0) == pytest.approx(10 + 2 * 1 + 2)


def test_the_first_steps_which_are_slow_count_only_where_nothing_better_is_known() -> None:
    costs = now(running("baseline", 10, first_step_seconds=0.5))
    # 90 x 0.2, 2 x 1 and 2 s of ending; without an earlier one 90 x 0.5, and evaluations of 5
    # batches at 0.35 of a step.
    assert remaining_seconds(costs, [EARLIER], 120.0) == pytest.approx(18 + 2 + 2)
    assert remaining_seconds(costs, [], 120.0) == pytest.approx(45 + 2 * 5 * 0.35 * 0.5)
    # Larger batches, and no run that both timed: then the first steps tell more.
    larger = replace(EARLIER, spec=replace(SPEC, training=TrainingSpec(batch_size=20)))
    assert remaining_seconds(costs, [larger], 120.0) == pytest.approx(45 + 2 + 2)


def test_compiling_ahead_that_nothing_tells_of_is_no_answer() -> None:
    costs = now(running("baseline", 90, step_seconds=0.2), running("inductor", 0))
    assert remaining_seconds(costs, [], 120.0) is None
    # One that compiles as much tells of it: `inductor` of one with other settings.
    other = replace(SPEC, backends=("inductor:scope=forward",))
    costs = Costs(name="now", spec=other, runs=(running("inductor-forward", 0),))
    # 100 x 0.2 at worst, 20 + 5 of compiling, 2 x (1 + 1), 2 s of ending.
    assert remaining_seconds(costs, [EARLIER], 120.0) == pytest.approx(20 + 25 + 4 + 2)


def test_for_a_bar_compiling_that_nothing_tells_of_is_guessed_by_the_setting_up() -> None:
    # Setting up took 10 s: inductor's compiling counts 40 s, 0.2 of that for evaluation, the end of
    # the processes 2 s, 3 profiled steps of each run 20 x 0.2 s, inductor's check 15 x 0.2 s.
    costs = now(
        running("baseline", 90, step_seconds=0.2, evaluations=1, evaluation_seconds=1.0),
        running("inductor", 0),
    )
    left = remaining_seconds(costs, [], 120.0, guess=True)
    assert left == pytest.approx(
        (10 * 0.2 + 1) + (100 * 0.2 + 40 + 8 + 4) + (2 * 3 * 20 * 0.2 + 3 + 2)
    )
    compiling = {"inductor": 15.0}
    assert remaining_seconds(costs, [], 135.0, compiling, guess=True) == pytest.approx(left - 15)
    # What an earlier experiment tells is no guess.
    known = remaining_seconds(costs, [EARLIER], 120.0)
    assert remaining_seconds(costs, [EARLIER], 120.0, guess=True) == known


def test_profiles_and_checks_are_to_come_less_what_of_them_is_over() -> None:
    """Earlier the baseline was profiled for 6 s; inductor for 4 s, and checked for 3 s, which ended
    a second before its process."""
    profiled = replace(
        EARLIER,
        runs=(
            replace(EARLIER.runs[0], profiling_seconds=6.0, checked_until=69.0),
            replace(
                EARLIER.runs[1], profiling_seconds=4.0, checking_seconds=3.0, checked_until=69.0
            ),
        ),
    )
    ended = {"evaluations": 2, "evaluation_seconds": 1.0, "compiled_evaluations": 2}
    baseline = running("baseline", 100, step_seconds=0.2, **ended)
    inductor = running("inductor", 100, step_seconds=0.1, **ended)
    assert remaining_seconds(now(baseline, inductor), [profiled], 200.0) == 6 + 4 + 3 + 1
    under_way = replace(inductor, profiling_seconds=4.5, checking_seconds=1.0)
    assert remaining_seconds(now(baseline, under_way), [profiled], 206.0) == 6 + 2 + 1
    # Without an earlier experiment a run of the same role tells: nothing tells of the baseline.
    other = replace(under_way, label="aot_eager", profiling_seconds=2.0, checking_seconds=0.0)
    spec = replace(SPEC, backends=("inductor", "aot_eager"))
    costs = Costs(name="now", spec=spec, runs=(baseline, under_way, other))
    assert remaining_seconds(costs, [], 206.0) == pytest.approx(2.5 + 1)


SCRIPT = replace(
    SPEC,
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    training=TrainingSpec(),
    evaluation=EvaluationSpec(),
)


def test_a_script_takes_as_many_steps_as_it_made_before() -> None:
    before = replace(EARLIER, spec=SCRIPT)
    # 8 s of setting up, 100 x 0.2 s, 100 x 0.1 and 20 s of compiling, 2 s of ending. A script's
    # evaluations are its own: none is planned.
    assert expected_seconds(SCRIPT, [before]) == pytest.approx(8 + 20 + 30 + 2)
    assert expected_seconds(SCRIPT, []) is None
    # It is to end after 40 steps: 40 x 0.2, 40 x 0.1. Asked for more than it makes, it makes 100.
    capped = replace(SCRIPT, script=ScriptSpec(steps=40))
    assert expected_seconds(capped, [before]) == pytest.approx(8 + 8 + 24 + 2)
    longer = replace(SCRIPT, script=ScriptSpec(steps=400))
    assert expected_seconds(longer, [before]) == pytest.approx(8 + 20 + 30 + 2)


def test_a_script_that_goes_on_says_by_itself_how_far_it_goes() -> None:
    runs = (
        running("baseline", 10, step_seconds=0.2, num_steps=60),
        running("inductor", 10, step_seconds=0.1, num_steps=60),
    )
    costs = Costs(name="now", spec=SCRIPT, runs=runs)
    assert remaining_seconds(costs, [], 120.0) == pytest.approx(50 * 0.2 + 50 * 0.1)


def test_the_same_script_with_the_same_arguments_comes_first(data_dir: DataDir) -> None:
    ids = [f"20261121-0930{number:02d}-123456-7f3a" for number in range(2)]
    for id, name, arguments in zip(ids, ("same", "others"), (("--a",), ()), strict=True):
        spec = replace(SCRIPT, name=name, script=ScriptSpec(arguments=arguments, steps=40))
        record_experiment(data_dir.runs, spec, id)
    with Store.in_memory(data_dir) as store:
        script = replace(SCRIPT, script=ScriptSpec(arguments=("--a",)))
        costs = earlier_costs(store, script, "Test CPU")
        assert [cost.name for cost in costs] == ["same", "others"]
        assert costs[0].runs[0].num_steps == 40


def test_without_an_earlier_experiment_runs_tell_of_each_other() -> None:
    costs = now(
        running("baseline", 50, step_seconds=0.2, evaluations=1, evaluation_seconds=1.0),
        running("inductor", 10, step_seconds=0.1, compile_seconds=20.0),
    )
    # 50 x 0.2 + 1 x 1; 90 x 0.1, 0.2 x 20 s of compiling for evaluation, 2 x (1 + 1).
    assert remaining_seconds(costs, [], 150.0) == pytest.approx(11 + 9 + 4 + 4)


def test_a_run_that_ended_takes_no_more_and_no_known_step_is_no_answer() -> None:
    done = RunCosts(label="baseline", role="baseline", state="failed", steps=10, step_seconds=0.2)
    assert remaining_seconds(now(done), [], 150.0) == 0.0
    assert remaining_seconds(now(running("baseline", 0)), [], 150.0) is None


def test_what_turns_take_beside_steps_and_evaluations_is_counted_too() -> None:
    run = running(
        "baseline",
        50,
        step_seconds=0.2,
        seconds_of_steps=10.0,
        worked_until=122.0,
        evaluations=1,
        evaluation_seconds=0.0,
    )
    # 12 s of turns for 10 s of steps; 50 x 0.2 s to come, and 0.35 of a step for each of 5 batches.
    assert remaining_seconds(now(run), [], 150.0) == pytest.approx(1.2 * (10 + 5 * 0.35 * 0.2))


def test_costs_are_those_of_the_journal(data_dir: DataDir) -> None:
    spec = experiment_spec(num_steps=40, controls=0)
    run = Recording(data_dir.runs, "inductor", spec).claim().start()
    run.blocks([0.1, 0.2, 0.2, 0.2], [1.0] * 40, compile_seconds=3.0)
    for step_seconds in (4.0, 0.5, 0.7):
        run.evaluation(0.5, split="validation", compiled=False)
        run.log.append(
            "evaluation",
            epoch=0,
            step=run.num_steps,
            split="validation",
            compiled=True,
            loss=1.0,
            metrics={},
            num_samples=200,
            seconds=step_seconds,
        )
        run.num_steps += 1  # as if they were evaluations at steps of their own
    run.log.flush()
    with Store.in_memory(data_dir) as store:
        (cost,) = costs_of(store, EXPERIMENT_ID).runs
    assert (cost.steps, cost.step_seconds) == (40, pytest.approx(0.2))
    # The first block has 10 steps of 0.1 s and 3 s of compiling; the others are steady at 0.2 s.
    assert cost.seconds_of_steps == pytest.approx(1 + 3 + 6)
    assert cost.compile_seconds == pytest.approx(3.1 - 0.2)
    assert (cost.evaluations, cost.evaluation_seconds) == (3, pytest.approx(0.1))
    assert cost.compiled_evaluations == 3
    assert cost.evaluation_compile_share == pytest.approx((4.0 - 0.6) / 2.9)


def test_earlier_experiments_of_the_same_model_count(data_dir: DataDir) -> None:
    ids = [f"20261121-0930{number:02d}-123456-7f3a" for number in range(3)]
    short = DataSpec(num_train_samples=320, num_eval_samples=200, sequence_length=16)
    record_experiment(data_dir.runs, experiment_spec(name="same"), ids[0])
    record_experiment(data_dir.runs, experiment_spec(name="shorter", data=short), ids[1])
    Recording(data_dir.runs, "baseline", experiment_spec(name="unfinished"), ids[2]).start()
    with Store.in_memory(data_dir) as store:
        costs = earlier_costs(store, experiment_spec(), "Test CPU")
        assert [cost.name for cost in costs] == ["same", "shorter"]
        assert earlier_costs(store, experiment_spec(), "Another CPU") == []
