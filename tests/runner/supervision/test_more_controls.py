"""Which trainings take another control, by hand and with real processes."""

import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner import more_controls
from breakeven.runner.commands.waiting import Storage, _watch
from breakeven.runner.experiments.queue import experiments, find_experiment, listed, submit
from breakeven.runner.loss_band import leaves_open
from breakeven.runner.more_controls import distance, judged_runs, strays
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import SpeedSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.measuring_warnings import FewRounds
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


def raised(by: float, since: int = 70) -> dict[int, float]:
    return {step: loss + by * (step >= since) for step, loss in FALLS.items()}


def test_a_distance_is_a_share_of_what_was_learned() -> None:
    assert distance([FALLS, FALLS], FALLS) == 0
    late, apart = raised(0.185), raised(0.37)
    assert distance([FALLS, FALLS], late) == pytest.approx(0.2)
    # Halfway between two trainings that lie 0.37 apart from step 70 on.
    assert distance([FALLS, apart], late) == pytest.approx(0.0)
    nearly = {**FALLS, 99: FALLS[99] + 1e-9}
    assert distance([FALLS, apart], nearly) == pytest.approx(0.2)
    assert distance([FALLS, apart], FALLS) == 0, "it is the baseline's training"
    # A training may begin to learn earlier than all of these; one that lost all is a fault.
    assert distance([FALLS, FALLS], raised(-1.85)) == pytest.approx(1.0)
    assert distance([FALLS, FALLS], raised(1.85)) == pytest.approx(2.0)


def test_nothing_is_asked_of_what_is_short_or_learned_nothing_and_no_number_is_near() -> None:
    short = {step: FALLS[step] for step in range(49)}
    assert distance([short, short], {step: 9.0 for step in short}) == 0
    assert distance([FALLS, FALLS], raised(0.2, 0)) == 0, "the band tells, or it draws others"
    flat = dict.fromkeys(range(100), 1.0)
    assert distance([flat, flat], {step: 9.0 for step in flat}) == 0
    assert math.isnan(distance([FALLS, FALLS], {**FALLS, 90: math.nan}))


def test_a_backend_that_hardly_leaves_the_band_is_left_open() -> None:
    # Half width in float32: 10 x 0.001 from step 0 on, whose first loss is 2: 0.5 % of it.
    control = raised(0.001, 0)
    for off, is_open in ((0.009, False), (0.011, True), (0.019, True), (0.021, False)):
        backend = {**FALLS, 30: FALLS[30] + off}
        assert leaves_open([FALLS, control], backend, "float32") == is_open
    assert not leaves_open([FALLS, control], {**FALLS, 30: FALLS[30] + 0.011, 31: math.nan}, "tf32")


@pytest.mark.parametrize(("times", "is_open"), [(3.9, False), (4.1, True), (19, True), (21, False)])
def test_in_bf16_one_control_calls_nothing_a_fault_below_twenty_times_what_it_strays(
    times: float, is_open: bool
) -> None:
    # Half width: 4 x 0.001, where the floor is 2.5e-4 x 2.
    control = raised(0.001, 0)
    backend = {**FALLS, 30: FALLS[30] + times * 0.001}
    assert leaves_open([FALLS, control], backend, "bf16") == is_open
    # Two controls call it a fault from twice the half width on.
    two = leaves_open([FALLS, control, control], backend, "bf16")
    assert two == (4 < times < 8)


@pytest.mark.parametrize(
    ("precision", "off", "most_seconds", "takes_one"),
    [
        ("bf16", 0.006, 20.0, True),
        ("float32", 0.006, 20.0, False),
        ("float32", 0.4, 20.0, True),
        ("float32", 2.0, 20.0, False),
        ("bf16", 0.006, 19.9, False),
    ],
)
def test_a_backend_takes_one_that_lies_off_too_little_to_call_it_a_fault_if_nobody_waits_long(
    data_dir: DataDir,
    monkeypatch: pytest.MonkeyPatch,
    precision: str,
    off: float,
    most_seconds: float,
    takes_one: bool,
) -> None:
    """Half width 4 x 0.001 in bf16, 10 x 0.001 in float32, which the specification names. A control
    takes 20 s."""
    monkeypatch.setattr(more_controls, "MAX_SECONDS", most_seconds)
    runs = []
    for label, role, by in (
        ("baseline", "baseline", 0.0),
        ("control", "control", 0.001),
        ("inductor", "backend", off),
    ):
        run = Recording(data_dir.runs, label).claim().start(precision=precision)
        run.blocks([0.2] * 10, [*raised(by, 0 if by < 0.1 else 70).values()])
        runs.append((role, run.end()))
    assert (more_controls.why_another_control(runs, "float32") is not None) == takes_one


WAVES = {step: loss + 0.03 * (-1) ** step * (step >= 20) for step, loss in FALLS.items()}
"""From step 20 on the control is 0.03 above and below the baseline by turns, so the band ends and
the steps from 20 on make ten windows of eight. Both stray from their mean by 0.015: the mean of
eight steps has a standard error of 0.015 x sqrt(2 / 8) = 0.0075, and three of them beside two
trainings are 3 x 0.0075 x sqrt(1.5) = 0.0276."""


def test_windows_that_may_break_parity_stray() -> None:
    def lifted(by: float, first: int, last: int) -> dict[int, float]:
        return {step: loss + by * (first <= step <= last) for step, loss in FALLS.items()}

    def is_astray(backend: dict[int, float], control: dict[int, float] = WAVES) -> bool:
        return strays([FALLS, control], backend, "float32")

    assert not is_astray(lifted(0.027, 84, 99)) and is_astray(lifted(0.028, 84, 99))
    assert is_astray(lifted(-0.028, 92, 99)), "the last window counts alone"
    assert not is_astray(lifted(0.1, 44, 51)) and is_astray(lifted(0.1, 44, 59))
    assert not is_astray(FALLS), "it is the baseline's training"
    assert not is_astray({**lifted(0.1, 84, 99), 3: 3.0}), "the band tells"
    # All windows of this control are 0.05 above: the mean of both is 0.025 above, and the spread
    # 0.05 / sqrt(2), three times of which are 0.13 beside two trainings.
    lies = {step: loss + 0.05 * (step >= 20) for step, loss in WAVES.items()}
    assert not is_astray(lifted(0.15, 84, 99), lies) and is_astray(lifted(0.16, 84, 99), lies)


@pytest.mark.parametrize(("off", "takes_one"), [(0.027, False), (0.028, True)])
def test_windows_that_may_break_parity_take_one(
    data_dir: DataDir, off: float, takes_one: bool
) -> None:
    """The differences are 3 % of what was learned."""
    late = {step: loss + off * (step >= 84) for step, loss in FALLS.items()}
    runs = []
    for label, role, losses in (
        ("baseline", "baseline", FALLS),
        ("control", "control", WAVES),
        ("inductor", "backend", late),
    ):
        run = Recording(data_dir.runs, label).claim().start()
        run.blocks([0.2] * 10, [*losses.values()])
        runs.append((role, run.end()))
    assert (more_controls.why_another_control(runs, "float32") is not None) == takes_one


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("backend", "schedule"),
    [("apart", "turns"), pytest.param("hardly", "sequential", marks=pytest.mark.slow)],
)
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
    first, second = (
        events(runs[label], "block")[0]["began"] for label in ("control-2", "control-3")
    )
    assert max(ends) < first < second
    (shown,) = listed(data_dir)
    assert [label for label, _, _ in shown.runs] == list(runs)
    with Store.in_memory(data_dir) as store:
        compared = compare(store, experiment_id)
    assert [result.label for result in compared.results] == list(runs)
    few = [warning for warning in compared.warnings if isinstance(warning, FewRounds)]
    assert not any("control-2" in warning.num_rounds for warning in few), "it was timed alone"
    assert [arm.perturbation_seed for arm in grown.arms] == [0, 0, 0, 1, 2]


def test_only_trainings_with_a_control_on_one_place_take_more() -> None:
    spec = experiment("eager", controls=1)
    assert [arm.label for arm in spec.further_controls] == [
        "control-2",
        "control-3",
        "control-4",
    ]
    assert replace(spec, controls=4).further_controls[0].label == "control-5"
    none = ({"controls": 0}, {"more_controls": 0}, {"scenario": "speed", "speed": SpeedSpec()})
    assert not any(replace(spec, **changes).further_controls for changes in none)
    assert spec.repeats_by_label["control-4"] == ("control-4",)


def test_larger_batches_are_no_reason_for_another_control(data_dir: DataDir) -> None:
    spec = experiment("eager", "eager:batch_times=2", controls=1)
    runs = [(data_dir.run_dir(f"x.{arm.label}"), arm) for arm in spec.arms]
    judged = [run.run_id for _, run in judged_runs(spec, None, runs)]
    assert judged == ["x.baseline", "x.control", "x.eager"]


def test_the_first_environment_also_judges_the_runs_of_the_others(data_dir: DataDir) -> None:
    spec = experiment("eager", controls=1, environments=("a=/a/python", "b=/b/python"))
    runs = [(data_dir.run_dir(f"x.{arm.label}"), arm) for arm in spec.arms]
    judged = {
        name: [(role, run.run_id) for role, run in judged_runs(spec, name, runs)] for name in "ab"
    }
    assert judged == {
        "a": [
            ("baseline", "x.baseline@a"),
            ("control", "x.control@a"),
            ("backend", "x.eager@a"),
            ("backend", "x.baseline@b"),
            ("backend", "x.eager@b"),
        ],
        "b": [("baseline", "x.baseline@b"), ("control", "x.control@b"), ("backend", "x.eager@b")],
    }


@pytest.mark.slow
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
    assert len(grown.runs) == 8, "cancelling a control cancels the experiment"
    assert "Further controls (control-2@a, control-2@b): " in capfd.readouterr().out
    alone = ("baseline", "control", "apart")
    labels = [f"{label}@{name}" for name in "ab" for label in alone]
    assert states(data_dir, experiment_id) == dict.fromkeys(
        [*labels, "control-2@a", "control-2@b"], RunState.FINISHED
    )
    with Store.in_memory(data_dir) as store:
        runs = [result.label for result in compare(store, experiment_id).results]
    assert set(runs) == {*labels, "control-2@a", "control-2@b"}
