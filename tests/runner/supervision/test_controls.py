"""Which trainings take another control, by hand and with real processes."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import breakeven.runner.supervision.controls
from breakeven.runner.commands.waiting import Storage, _watch
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import experiments, find_experiment, listed, submit
from breakeven.runner.folders.states import RunState
from breakeven.runner.loss_band import leaves_open
from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.runner.supervision.controls import distance, judged_in, why_another_control
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers import fake_worker
from tests.helpers.journals import Recording
from tests.runner.supervision.supervised import impatience as impatience
from tests.runner.supervision.test_supervisor import (
    events,
    experiment,
    ran,
    run_dirs,
    states,
    states_of,
)

FALLS = {step: 2.0 - step / 100 for step in range(100)}
"""The first five steps are 1.98 on average, the last ten 1.055: 0.925 were learned."""


def test_a_distance_is_a_share_of_what_was_learned() -> None:
    assert distance([FALLS, FALLS], FALLS) == 0
    late = {step: loss + (0.185 if step >= 70 else 0) for step, loss in FALLS.items()}
    assert distance([FALLS, FALLS], late) == pytest.approx(0.2)
    # Halfway between two trainings that lie 0.37 apart from step 70 on.
    apart = {step: loss + (0.37 if step >= 70 else 0) for step, loss in FALLS.items()}
    assert distance([FALLS, apart], late) == pytest.approx(0.0)
    nearly = {**FALLS, 99: FALLS[99] + 1e-9}
    assert distance([FALLS, apart], nearly) == pytest.approx(0.2)
    assert distance([FALLS, apart], FALLS) == 0, "it is the baseline's training"


def test_a_backend_that_learned_far_more_gets_a_control_and_one_that_lost_all_does_not() -> None:
    """Equal trainings learned 0.925. A training may begin to learn earlier than all of these."""
    for offset, share in ((-1.85, 1.0), (1.85, 2.0)):
        apart = {step: loss + (offset if step >= 70 else 0) for step, loss in FALLS.items()}
        assert distance([FALLS, FALLS], apart) == pytest.approx(share)


def test_nothing_is_asked_of_what_is_short_or_learned_nothing_and_no_number_is_near() -> None:
    short = {step: FALLS[step] for step in range(49)}
    assert distance([short, short], {step: 9.0 for step in short}) == 0
    early = {step: loss + 0.2 for step, loss in FALLS.items()}
    assert distance([FALLS, FALLS], early) == 0, "the band tells, or it draws other numbers"
    flat = dict.fromkeys(range(100), 1.0)
    assert distance([flat, flat], {step: 9.0 for step in flat}) == 0
    assert math.isnan(distance([FALLS, FALLS], {**FALLS, 90: math.nan}))


ALONE = ["baseline", "control", "apart"]


def test_a_backend_that_hardly_leaves_the_band_is_left_open() -> None:
    # Half width in float32: 10 x 0.001 from step 0 on, whose first loss is 2: 0.5 % of it.
    control = {step: loss + 0.001 for step, loss in FALLS.items()}
    for off, is_open in ((0.009, False), (0.011, True), (0.019, True), (0.021, False)):
        backend = {**FALLS, 30: FALLS[30] + off}
        assert leaves_open([FALLS, control], backend, "float32") == is_open
    assert not leaves_open([FALLS, control], {**FALLS, 30: FALLS[30] + 0.011, 31: math.nan}, "tf32")


@pytest.mark.parametrize(("times", "is_open"), [(3.9, False), (4.1, True), (19, True), (21, False)])
def test_in_bf16_one_control_calls_nothing_a_fault_below_twenty_times_what_it_strays(
    times: float, is_open: bool
) -> None:
    # Half width: 4 x 0.001, where the floor is 2.5e-4 x 2.
    control = {step: loss + 0.001 for step, loss in FALLS.items()}
    backend = {**FALLS, 30: FALLS[30] + times * 0.001}
    assert leaves_open([FALLS, control], backend, "bf16") == is_open
    # Two controls call it a fault from twice the half width on.
    two = leaves_open([FALLS, control, control], backend, "bf16")
    assert two == (4 < times < 8)


@pytest.mark.parametrize(("precision", "takes_one"), [("bf16", True), ("float32", False)])
def test_the_band_is_that_of_the_precision_in_which_the_baseline_computed(
    data_dir: DataDir, precision: str, takes_one: bool
) -> None:
    """Half width 4 x 0.001 in bf16, 10 x 0.001 in float32, which the specification names."""
    runs = []
    for role, off in (("baseline", 0.0), ("control", 0.001), ("inductor", 0.006)):
        run = Recording(data_dir.runs, role).claim().start(precision=precision)
        run.blocks([0.2] * 10, [loss + off for loss in FALLS.values()])
        runs.append((role if off < 0.006 else "backend", run.end()))
    assert (why_another_control(runs, "float32") is not None) == takes_one


@pytest.mark.heavy
@pytest.mark.parametrize(("backend", "schedule"), [("apart", "turns"), ("hardly", "sequential")])
def test_a_backend_that_lies_too_far_off_to_tell_gets_more_controls_after_all_else(
    data_dir: DataDir, backend: str, schedule: str
) -> None:
    changes = {"steps": 60, "schedule": schedule, "controls": 1, "more_controls": 2}
    alone = list(ran(data_dir, backend, **changes))
    assert alone == ["baseline", "control", backend]
    (grown,) = experiments(data_dir)
    experiment_id = grown.experiment_id
    runs = run_dirs(data_dir, experiment_id)
    assert states_of(runs) == dict.fromkeys([*alone, "control-2", "control-3"], RunState.FINISHED)
    ends = [max(event["time"] for event in events(runs[label], "step")) for label in alone]
    (first, *_), (second, *_) = (
        [block["began"] for block in events(runs[label], "block")]
        for label in ("control-2", "control-3")
    )
    assert max(ends) < first < second
    (shown,) = listed(data_dir)
    assert [label for label, _, _ in shown.runs] == list(runs)
    with Store.in_memory(data_dir) as store:
        compared = compare(store, experiment_id)
    assert [one.label for one in compared.results] == list(runs)
    few = [one for one in compared.warnings if one.kind == "few rounds"]
    assert not any("control-2" in one.runs for one in few), "it was timed beside nothing"
    assert [one.perturbation_seed for one in grown.variants] == [0, 0, 0, 1, 2]


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("backends", "changes"),
    [
        (("eager", "crash", "farther"), {}),  # the last is a fault, whatever controls would say
        (("apart",), {"more_controls": 0}),
        (("apart",), {"controls": 0}),
    ],
)
def test_nothing_more_is_run_where_it_would_tell_nothing(
    data_dir: DataDir, backends: tuple[str, ...], changes: dict[str, int]
) -> None:
    before = ran(data_dir, *backends, steps=60, **{"controls": 1, **changes})
    (after,) = experiments(data_dir)
    assert len(after.runs) == len(before)


@pytest.mark.heavy
def test_nobody_is_made_to_wait_longer_than_so_many_seconds(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 60 steps of a millisecond: a second control more would make it 0.12 s.
    monkeypatch.setattr(breakeven.runner.supervision.controls, "MAX_SECONDS", 0.1)
    ran(data_dir, "apart", steps=60, controls=1)
    (grown,) = experiments(data_dir)
    assert [one.label for one in grown.variants] == [*ALONE, "control-2"]


def test_only_trainings_with_a_control_on_one_place_take_more() -> None:
    spec = experiment("eager", controls=1)
    assert [one.label for one in spec.further_controls] == ["control-2", "control-3", "control-4"]
    assert replace(spec, controls=4).further_controls[0].label == "control-5"
    assert replace(spec, scenario="speed", speed=SpeedSpec()).further_controls == ()
    assert spec.repeats_by_label["control-4"] == ("control-4",)


def test_larger_batches_are_no_reason_for_another_control(data_dir: DataDir) -> None:
    spec = experiment("eager", "eager:batch_times=2", controls=1)
    runs = [(data_dir.run_dir(f"x.{one.label}"), one) for one in spec.variants]
    judged = [run.run_id for _, run in judged_in(spec, None, runs)]
    assert judged == ["x.baseline", "x.control", "x.eager"]


def test_the_first_environment_also_judges_the_runs_of_the_others(data_dir: DataDir) -> None:
    spec = experiment("eager", controls=1, environments=("a=/a/python", "b=/b/python"))
    runs = [(data_dir.run_dir(f"x.{one.label}"), one) for one in spec.variants]
    judged = {
        name: [(role, run.run_id) for role, run in judged_in(spec, name, runs)] for name in "ab"
    }
    assert judged == {
        "a": [("baseline", "x.baseline@a"), ("control", "x.control@a"), ("backend", "x.eager@a"),
              ("backend", "x.baseline@b"), ("backend", "x.eager@b")],
        "b": [("baseline", "x.baseline@b"), ("control", "x.control@b"), ("backend", "x.eager@b")],
    }  # fmt: skip


@pytest.mark.heavy
def test_each_environment_takes_controls_of_its_own(
    data_dir: DataDir, capfd: pytest.CaptureFixture[str]
) -> None:
    """`apart` lies too far off to tell in both; Breakeven's own Python is both environments."""
    environments = (f"a={sys.executable}", f"b={sys.executable}")
    spec = experiment("apart", steps=60, controls=1, more_controls=1, environments=environments)
    experiment_id = submit(data_dir, spec)
    submitted = find_experiment(data_dir, experiment_id)
    supervise(data_dir, (sys.executable, str(Path(fake_worker.__file__))))
    grown = _watch(data_dir, submitted, Storage(data_dir))
    assert len(grown.runs) == 8, "whoever cancels a control cancels the experiment"
    assert "Further controls (control-2@a, control-2@b): " in capfd.readouterr().out
    labels = [f"{label}@{name}" for name in "ab" for label in ALONE]
    assert states(data_dir, experiment_id) == dict.fromkeys(
        [*labels, "control-2@a", "control-2@b"], RunState.FINISHED
    )
    with Store.in_memory(data_dir) as store:
        runs = [one.label for one in compare(store, experiment_id).results]
    assert set(runs) == {*labels, "control-2@a", "control-2@b"}
