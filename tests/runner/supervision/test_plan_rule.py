"""A planned training ends when it is decided what is best for the planned steps, and not before."""

from dataclasses import replace

import pytest

from benchmarks.search_trials import Noise
from benchmarks.stopping_trials import Planned, planned_spec
from breakeven.runner.specs.experiment import (
    DataSpec,
    ExperimentSpec,
    ModelSpec,
    PlanSpec,
    TrainingSpec,
)
from breakeven.runner.supervision.racer import Racer
from breakeven.runner.supervision.ranking import Ranking

SPEC = planned_spec(steps=20_000)


def planned(spec: ExperimentSpec = SPEC, **paces: float) -> Planned:
    """`paces`: step time of each backend as a share of the baseline's."""
    spec = replace(spec, backends=tuple(paces))
    return Planned(spec, paces, "seed", Noise())


def test_a_clear_lead_is_decided_after_ten_rounds() -> None:
    trial = planned(eager=0.8)
    assert trial.play() == "decided"
    assert trial.num_rounds == 10
    assert trial.rule.decide(["baseline", "control", "eager"]).over == trial.over
    assert trial.over is not None and trial.over.to == "eager"


def test_a_backend_that_surely_loses_ends_before_the_others() -> None:
    trial = planned(eager=0.9, aot_eager=1.3)
    assert trial.play() == "decided"
    assert trial.endings == {"aot_eager": "loses"}
    assert trial.ended_after["aot_eager"] < trial.num_rounds


def test_a_backend_whose_compiling_costs_more_than_it_saves_loses() -> None:
    # 20,000 steps of 0.01 s take 200 s; a tenth less saves 20 s.
    trial = Planned(SPEC, {"eager": 0.9}, "seed", Noise(), compiling=30.0)
    assert trial.play() == "decided"
    assert trial.endings == {"eager": "loses"}
    assert trial.over is not None and trial.over.to == "baseline"


def test_equal_runs_end_as_equal_within_the_width_that_is_asked_for() -> None:
    wide = replace(SPEC, plan=replace(SPEC.plan, target_width=0.05))
    first, second = planned(wide, eager=1.0), planned(eager=1.0)
    assert (first.play(), second.play()) == ("alike", "alike")
    assert first.num_rounds < second.num_rounds


def test_a_difference_as_between_two_processes_of_one_program_is_no_loss() -> None:
    trial = Planned(SPEC, {"eager": 1.005}, "seed", Noise(block=0.001), compiling=0.0)
    assert (trial.play(), trial.endings) == ("alike", {})


def test_a_lead_about_as_large_as_the_width_is_left_open_when_the_budget_is_spent() -> None:
    spec = replace(SPEC, plan=PlanSpec(steps=20_000, max_seconds=60.0))
    trial = planned(spec, eager=1 / 1.02)
    assert trial.play() == "seconds"
    # Three runs of 10 steps of 0.01 s make 0.3 s a round.
    assert 190 <= trial.num_rounds <= 210


def test_what_is_left_of_a_short_training_is_trained_although_the_speed_is_decided() -> None:
    # 400 steps of 0.01 s of three runs take 12 s, and 40,000 steps 20 minutes. The first of 40
    # blocks is a warm-up.
    short = replace(SPEC, training=replace(SPEC.training, max_steps=400))
    for spec, rounds in (
        (short, 39),
        (SPEC, 10),
        (replace(short, plan=replace(SPEC.plan, parity="full")), 39),
    ):
        trial = planned(spec, eager=0.8)
        assert trial.play() == "decided"
        assert trial.num_rounds == rounds


def test_a_run_that_begins_anew_after_a_crash_trains_to_the_end_again() -> None:
    short = replace(SPEC, training=replace(SPEC.training, max_steps=400))
    trial = planned(short, eager=0.8)
    trial.play_rounds(39)
    trial.rule.take("baseline", {"kind": "resumed", "step": 0})
    assert trial.rule.decide(trial.living).over is None


def test_what_is_timed_further_has_a_budget_of_its_own_and_ends_where_it_is_decided() -> None:
    """Three runs of 10 steps of 0.01 s make 0.3 s a round, after 30 s in which nothing was decided;
    most of the training's steps are left."""
    short = replace(SPEC, plan=PlanSpec(steps=20_000, max_seconds=15.0))
    trial = planned(short, eager=1 / 1.02)
    trial.play_rounds(100)
    trial.rule.training_is_over()
    assert trial.play() == "seconds"
    assert 145 <= trial.num_rounds <= 155
    clear = planned(replace(short, plan=replace(short.plan, parity="full")), eager=0.8)
    clear.play_rounds(3)
    clear.rule.training_is_over()
    assert clear.play() == "decided"
    assert clear.num_rounds == 10


def test_training_starts_again_only_where_a_step_does_nothing_else() -> None:
    assert planned(eager=1.0).rule.decide(["baseline", "control", "eager"]).again
    watched = replace(SPEC, callbacks=("hooks.py:Mine",))
    assert not planned(watched, eager=1.0).rule.decide(["baseline", "control", "eager"]).again


def test_a_backend_with_wrong_losses_is_not_the_best_however_fast_it_is() -> None:
    trial = planned(eager=0.8, aot_eager=0.5)
    trial.wrong.add("aot_eager")
    assert trial.play() == "decided"
    assert trial.over is not None and trial.over.to == "eager"


OTHER = "none-math_attention_reduced"
"""The label of an arm that is judged by its outcome."""


def other_training(spec: ExperimentSpec = SPEC, **paces: float) -> Planned:
    """It takes half of the time, and has other losses."""
    spec = replace(spec, backends=("none:math_attention=reduced", *paces))
    trial = Planned(spec, {OTHER: 0.5, **paces}, "seed", Noise())
    trial.wrong.add(OTHER)
    return trial


def test_another_training_is_trained_to_its_end_before_it_is_decided_about() -> None:
    # 400 steps are 39 blocks of 10 after the warm-up.
    trial = other_training(replace(SPEC, training=replace(SPEC.training, max_steps=400)))
    assert (trial.play(38), trial.play()) == ("unended", "decided")
    assert trial.over is not None and trial.over.to == OTHER, "its losses are no fault"


def test_another_training_that_is_slower_is_trained_to_its_end_as_it_may_learn_more() -> None:
    trial = Planned(
        replace(SPEC, backends=("none:math_attention=reduced",)), {OTHER: 1.3}, "seed", Noise()
    )
    assert (trial.play(50), trial.endings) == ("unended", {})


def test_none_loses_to_another_training_that_may_be_worse() -> None:
    trial = other_training(eager=0.8, aot_eager=1.3)
    assert (trial.play(50), trial.endings) == ("unended", {"aot_eager": "loses"})


def test_a_script_of_unknown_length_is_trained_to_its_end_where_that_is_asked_for() -> None:
    script = replace(
        SPEC,
        task="script",
        model=ModelSpec(source="script:/home/me/train.py"),
        data=DataSpec(source="script"),
        training=TrainingSpec(),
    )
    to_the_end = replace(script, plan=replace(SPEC.plan, parity="full"))
    assert planned(script, eager=0.8).play(50) == "decided"
    assert planned(to_the_end, eager=0.8).play(50) == "unended"


def test_without_a_backend_that_is_left_nothing_is_measured() -> None:
    trial = planned(eager=0.8)
    assert trial.rule.decide(["baseline", "control"]).over is not None
    assert trial.rule.decide(["baseline", "control", "eager"]).over is not None


def test_people_read_until_when_a_planned_training_is_measured() -> None:
    assert SPEC.kind.length_words(SPEC) == "until it is decided what is best for 20,000 steps"
    # Runs that follow one another are not decided together.
    alone = replace(SPEC, schedule="sequential")
    assert alone.kind.length_words(alone) == "40000 steps per run"


def test_starting_again_costs_the_budget_and_compiling_once_more_no_backend() -> None:
    """It compiles for 3.9 s in its training. To start again takes 8 s, in which it compiles for 3,
    and afterwards 2 s more."""
    racer = Racer(SPEC.arms[0])
    block = {"kind": "block", "compiled": False}
    racer.take({**block, "round": 0, "num_steps": 1, "seconds": 4.0, "compiled": True})
    racer.take({**block, "round": 1, "num_steps": 10, "seconds": 1.0})
    racer.take({"kind": "resumed", "step": 11, "file": None, "time": 100.0})
    racer.take({**block, "round": 2, "num_steps": 1, "seconds": 3.0, "compiled": True})
    racer.take({"kind": "phase", "phase": "waiting", "time": 108.0})
    racer.take({**block, "round": 3, "num_steps": 1, "seconds": 2.0, "compiled": True})
    racer.take({**block, "round": 4, "num_steps": 10, "seconds": 1.0})
    assert racer.compile_seconds == pytest.approx(3.9)
    assert racer.again_seconds == pytest.approx(10.0)
    assert racer.blocks == {1: 1.0, 4: 1.0}
    ranking = Ranking(SPEC, 100, 2)
    ranking.racers["baseline"] = racer
    assert ranking.seconds == pytest.approx(16.0)
    # A new process loads beside others, which is no part of the budget; it compiles for 5 s.
    racer.take({"kind": "environment"})
    racer.take({"kind": "resumed", "step": 22, "file": None, "time": 200.0})
    racer.take({"kind": "phase", "phase": "waiting", "time": 220.0})
    racer.take({**block, "round": 5, "num_steps": 1, "seconds": 5.0, "compiled": True})
    assert racer.again_seconds == pytest.approx(15.0)
