"""Profiles that cannot be true are withheld everywhere; those of slowed steps are shares."""

import json
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.storage.index.store import Store
from breakeven.storage.profile.explanation import Explanation, explain, profiles_table
from breakeven.storage.profile.recorded_profiles import IDLE, Profile
from breakeven.storage.terminal.as_json import explanation_json
from breakeven.storage.terminal.report import explain_report
from breakeven.storage.words.profile import AGAIN, profile_words
from breakeven.views.charts.profile import breakdown
from breakeven.views.report.content import content
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec
from tests.helpers.profiles.recorded import make_profile

ADD = {"name": "aten::add", "op": "aten::add"}


def profile(
    *seconds: float, step: float | None = 0.010, on_cpu: bool = False, **turn: Any
) -> Profile:
    frame = pd.DataFrame({"name": "aten::add", "op": "aten::add", "seconds": seconds})
    return make_profile(frame, step, works_by_itself=not on_cpu, **turn)


def recorded(data_dir: DataDir, device_type: str, **seconds: tuple[float, float, float]) -> None:
    """Each run: seconds of a timed step, of a profiled one, and of its one operator there."""
    spec = experiment_spec(num_steps=80)
    for label, (timed, profiled, busy) in seconds.items():
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(environment={"device_type": device_type}, padding_share=0.5)
        run.blocks([timed] * 8, [1.0] * 80)
        run.profile([ADD | {"seconds": busy}], seconds=profiled).end()


def explained(data_dir: DataDir) -> Explanation:
    with Store.in_memory(data_dir) as store:
        return explain(store, EXPERIMENT_ID)


def test_operators_of_a_slowed_step_are_shares_of_that_step() -> None:
    """By the clock 34.1 ms. Profiled, beside others, 43: operators 36, so Python is 7 of 43, which
    is 34.1 x 7 / 43 = 5.55 ms, and not 34.1 - 36 = -1.9 ms."""
    slowed = profile(0.020, 0.016, step=0.0341, on_cpu=True, seconds=0.043)
    assert slowed.misfit is None
    assert slowed.idle_seconds == pytest.approx(0.0341 * 7 / 43)
    assert slowed.by_class.sum() == pytest.approx(0.0341)
    assert slowed.by_class["elementwise"] == pytest.approx(0.0341 * 36 / 43)


def test_kernels_of_a_device_that_works_by_itself_take_as_long_as_they_took() -> None:
    """10 ms by the clock: 7 ms of kernels stay 7, though the host took 30 ms under the profiler. Of
    10.5 ms of kernels 10 are left, and nothing idles; more than 11 cannot be."""
    partly_idle = profile(0.007, seconds=0.030)
    assert partly_idle.idle_seconds == pytest.approx(0.003) and partly_idle.scale == 1.0
    full = profile(0.0105)
    assert full.misfit is None and full.idle_seconds == pytest.approx(0.0)
    assert full.by_class.sum() == pytest.approx(0.010)
    beyond = profile(0.012)
    assert beyond.misfit is not None and not beyond.is_known


@pytest.mark.parametrize(
    ("seconds", "turn"),
    [
        ([0.004, -0.001], {}),
        ([0.004, float("nan")], {}),
        ([0.009, 0.009], {"seconds": 0.010}),  # two threads, each counted whole
        ([0.004, 0.004], {"busy_seconds": 0.004}),  # every line twice
        ([0.004], {"host_seconds": {"between_graphs": 0.5}}),  # a part longer than the step
        ([0.004], {"underfilled_seconds": -0.002}),
        ([0.004], {"underfilled_seconds": 0.5}),
    ],
)
@pytest.mark.parametrize("on_cpu", [False, True])
def test_false_parts_are_withheld(seconds: list[float], turn: dict[str, Any], on_cpu: bool) -> None:
    profiled = profile(*seconds, on_cpu=on_cpu, **turn)
    assert not profiled.is_known and profiled.misfit is not None
    assert str(profile_words(profiled)).count("withheld") == 1


@pytest.mark.parametrize(("profiled", "shown"), [(0.014, True), (0.016, False), (0.006, False)])
def test_profiles_of_another_pace_are_withheld(profiled: float, shown: bool) -> None:
    of_pace = profile(0.005, on_cpu=True, seconds=profiled)
    assert of_pace.is_known is shown
    assert profile(0.005, on_cpu=True, step=None, seconds=profiled).is_known, "nothing to compare"


def test_every_surface_withholds_what_cannot_be(data_dir: DataDir) -> None:
    """The baseline as seen on a busy machine: 34.1 ms by the clock, 60.5 ms of operators in steps
    of 72 ms. Under Inductor the two agree."""
    recorded(data_dir, "cpu", baseline=(0.0341, 0.072, 0.0605), inductor=(0.030, 0.031, 0.024))
    with Store.in_memory(data_dir) as store:
        explanation = explain(store, EXPERIMENT_ID)
        printed, as_json = explain_report(explanation), json.loads(explanation_json(explanation))
        report = content(store, EXPERIMENT_ID).page.why
    sentence = (
        "baseline: the profile is withheld, because steps took 72.0 ms while they were "
        "profiled and 34.1 ms before."
    )
    assert printed.count("withheld") == 1 and sentence in printed
    assert (
        next(profiled["why_not"] for profiled in as_json["profiles"] if "by_class" not in profiled)
        == f"{sentence} {AGAIN}"
    )
    assert printed.count(AGAIN) == 1
    assert not as_json["bridges"] and not explanation.bridges
    assert {finding.label for finding in explanation.findings} <= {"inductor"}
    assert sum("withheld" in line for line in report) == 1
    assert list(profiles_table(explanation)["run"]) == ["inductor"]
    drawn = {label for trace in breakdown(explanation.profiles).data for label in trace.y}
    assert drawn == {"inductor"}


def test_each_withheld_profile_has_a_line_of_its_own_on_the_terminal(data_dir: DataDir) -> None:
    recorded(data_dir, "cpu", baseline=(0.0341, 0.072, 0.0605), inductor=(0.030, 0.072, 0.060))
    lines = explain_report(explained(data_dir)).splitlines()
    withheld = [line.partition(":")[0] for line in lines if "withheld" in line]
    assert withheld == ["baseline", "inductor"] and lines.count(AGAIN) == 1


def test_nothing_that_is_shown_is_negative_or_longer_than_the_step(data_dir: DataDir) -> None:
    recorded(data_dir, "cpu", baseline=(0.034, 0.045, 0.044), inductor=(0.030, 0.041, 0.040))
    explanation = explained(data_dir)
    for profiled in explanation.profiles:
        assert (
            profiled.step_seconds is None
            or not profiled.is_known
            or (
                (profiled.by_class >= 0).all()
                and profiled.by_class.sum() == pytest.approx(profiled.step_seconds)
            )
        )
    parts = explanation.bridges["inductor"].parts
    assert (parts[["baseline", "run"]] >= 0).all(axis=None) and IDLE in set(parts["work_class"])
    assert explanation.findings
    for finding in explanation.findings:
        assert finding.seconds is None or 0 <= finding.seconds <= 0.034
    padding = next(finding for finding in explanation.findings if finding.kind == "padding")
    assert padding.seconds == pytest.approx(0.5 * 0.034 * 44 / 45)


def test_a_run_that_failed_is_not_said_to_have_been_recorded_without(data_dir: DataDir) -> None:
    recorded(data_dir, "cpu", baseline=(0.034, 0.036, 0.03))
    run = Recording(data_dir.runs, "inductor", experiment_spec(num_steps=80)).claim().start()
    run.end(RunState.FAILED, "boom")
    said = explain_report(explained(data_dir))
    assert "inductor has no profile: the run failed before its profile." in said
    assert "it was off" not in said.replace("control has no profile", "")
