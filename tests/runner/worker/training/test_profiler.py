"""Profiled turns in a real training: after all steps, in no timing, and never the end of a run."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.worker.device.device_kinds import CpuDevice
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.training import profiler, training_loop
from breakeven.runner.worker.training.profiler import budget_seconds, needs_turn
from breakeven.runner.worker.training.training_loop import Trainer
from tests.helpers.loop import NET, TurnsOnPaper, experiment, folder_of, of_kind, run

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch")]


def test_a_training_is_profiled_in_a_turn_of_its_own_behind_all_others(tmp_path: Path) -> None:
    spec = experiment(**NET, backends=("eager:scope=forward",))
    turns, profiled = TurnsOnPaper(), replace(spec, profile_steps=2)
    events = run(profiled, tmp_path / "with", "eager-forward", turns=turns)
    without = run(spec, tmp_path / "without", "eager-forward")
    assert [step["loss"] for step in of_kind(events, "step")] == [
        step["loss"] for step in of_kind(without, "step")
    ]
    last_block = of_kind(events, "block")[-1]
    (profile,) = of_kind(events, "profile")
    assert profile["seq"] > last_block["seq"] and profile["round"] == last_block["round"] + 1
    assert turns.said[-2:] == ["done", "finished"]
    assert len(of_kind(events, "block")) == len(of_kind(without, "block"))
    assert not of_kind(without, "profile")
    phases = [event["phase"] for event in of_kind(events, "phase")]
    assert phases.index("profiling") > 0 and phases[-1] == "done"
    # The kernels add up to the time that the operators took.
    kernels = of_kind(events, "profile_kernel")
    assert profile["busy_seconds"] == pytest.approx(sum(kernel["seconds"] for kernel in kernels))
    assert 0 < profile["busy_seconds"] <= profile["seconds"]
    assert not profile["compiled"] and profile["cost_seconds"] > 0
    assert {"aten::addmm", "aten::mm"} <= {kernel["name"] for kernel in kernels}
    assert {"forward", "backward"} <= {kernel["phase"] for kernel in kernels}
    trace = folder_of(tmp_path / "with").path / profile["trace"]
    assert trace.stat().st_size == profile["trace_bytes"]


def test_a_profile_that_fails_is_recorded_and_the_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_trace(file: Path) -> Any:
        raise ValueError("the trace is torn")

    monkeypatch.setattr(profiler, "read_trace", no_trace)
    events = run(experiment(profile_steps=1, **NET), tmp_path / "journal")
    (profile,) = of_kind(events, "profile")
    assert profile["failure"] == "ValueError: the trace is torn"
    assert of_kind(events, "phase")[-1]["phase"] == "done"


def test_whoever_is_stopped_before_the_profile_has_trained_to_the_end(tmp_path: Path) -> None:
    """Two epochs of six steps in blocks of four make four turns; a fifth never comes."""
    turns = TurnsOnPaper(num_turns=4)
    events = run(experiment(profile_steps=1, **NET), tmp_path / "journal", turns=turns)
    assert not of_kind(events, "profile")
    assert of_kind(events, "phase")[-1]["phase"] == "done"


def test_forward_passes_are_profiled_too(tmp_path: Path) -> None:
    speed = SpeedSpec(part="inference", batches=2, min_rounds=6, max_rounds=6)
    spec = experiment(scenario="speed", speed=speed, profile_steps=1, **NET)
    events = run(spec, tmp_path / "journal")
    (profile,) = of_kind(events, "profile")
    assert profile["busy_seconds"] > 0 and profile["host_seconds"]["backward"] == 0


def like_harness(part: str) -> ExperimentSpec:
    """Two rounds, and one profiled step in each turn."""
    speed = SpeedSpec(part=part, batches=2, min_rounds=6, max_rounds=6)
    return experiment(
        scenario="speed",
        speed=speed,
        settings="harness",
        profile_steps=1,
        backends=("eager:scope=forward",),
        **NET,
    )


@pytest.fixture
def device_at_work_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU is: steps are waited for, in three profiled turns, as where no two agree."""
    monkeypatch.setattr(CpuDevice, "works_by_itself", True)
    monkeypatch.setattr(profiler, "needs_turn", lambda *of_turns: True)


def spied_on(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, seen: list[str]) -> None:
    real = getattr(owner, name)

    def spy(*arguments: Any) -> Any:
        seen.append(name)
        return real(*arguments)

    monkeypatch.setattr(owner, name, spy)


OF_A_TURN = {
    "eager-forward": ["compiled", *["uncompiled", "compiled"] * 10, "compiled"],
    "baseline": ["compiled"] * 12,
}
"""Of the first turn: one step unseen, ten that are waited for, one profiled."""


@pytest.mark.parametrize("label", ["eager-forward", "baseline"])
@pytest.mark.usefixtures("device_at_work_by_itself")
def test_like_the_harness_a_forward_pass_that_is_waited_for_comes_after_an_uncompiled_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, label: str
) -> None:
    seen: list[str] = []
    spied_on(monkeypatch, Inference, "forward", seen)
    spied_on(monkeypatch, Inference, "forward_uncompiled", seen)
    events = run(like_harness("inference"), tmp_path / "journal", label)
    names = {"forward": "compiled", "forward_uncompiled": "uncompiled"}
    expected = [*OF_A_TURN[label], *["compiled"] * 4]
    assert [names[name] for name in seen][-len(expected) :] == expected
    # After a profile steps are slower, so those of later turns are not waited for.
    assert [profile["waited_seconds"] is None for profile in of_kind(events, "profile")] == [
        False,
        True,
        True,
    ]


@pytest.mark.usefixtures("device_at_work_by_itself")
def test_like_the_harness_a_training_step_that_is_waited_for_comes_after_one_of_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    weights: list[torch.Tensor] = []
    real = training_loop.uncompiled_copy

    def copied(model: torch.nn.Module, *arguments: Any) -> Any:
        step = real(model, *arguments)
        parameter = next(model.parameters())

        def uncompiled(batches: Any) -> None:
            before = parameter.detach().clone()
            step(batches)
            seen.append("uncompiled")
            weights.append(parameter.detach() - before)

        return uncompiled

    monkeypatch.setattr(training_loop, "uncompiled_copy", copied)
    spied_on(monkeypatch, Trainer, "_make_step", seen)
    run(like_harness("training"), tmp_path / "journal", "eager-forward")
    names = {"_make_step": "compiled", "uncompiled": "uncompiled"}
    begin = seen.index("uncompiled") - 1
    expected = [*OF_A_TURN["eager-forward"], *["compiled"] * 4]
    assert [names[name] for name in seen][begin:][: len(expected)] == expected
    assert not any(change.any() for change in weights)


@pytest.mark.usefixtures("device_at_work_by_itself")
def test_where_no_copy_can_be_made_nothing_is_waited_for_and_all_else_is_profiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*arguments: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(training_loop, "uncompiled_copy", no_room)
    events = run(like_harness("training"), tmp_path / "journal", "eager-forward")
    profiles = of_kind(events, "profile")
    assert [profile["waited_seconds"] for profile in profiles] == [None] * 3
    assert all("failure" not in profile and profile["seconds"] > 0 for profile in profiles)


@pytest.mark.parametrize(
    ("costs", "busy", "needed"),
    [
        pytest.param([], [], True, id="a first turn always"),
        pytest.param([1.4], [0.1], True, id="a second one within the budget: 2.8 s"),
        pytest.param([1.6], [0.1], False, id="not beyond the budget: 3.2 s"),
        pytest.param([0.2, 0.2], [0.1, 0.1004], False, id="no third one where two agree: 0.4 %"),
        pytest.param([0.2, 0.2], [0.1, 0.1006], True, id="a third one where they do not: 0.6 %"),
        pytest.param([1.1, 1.1], [0.1, 0.2], False, id="nor a third one beyond the budget: 3.3 s"),
        pytest.param([0.2, 0.2], [0.1], True, id="a turn that failed or compiled says nothing"),
    ],
)
def test_a_further_turn_is_taken_until_two_agree_and_within_the_budget(
    costs: list[float], busy: list[float], needed: bool
) -> None:
    # 3 s, where 5 % of the experiment are less; of 10 minutes each of four runs has 7.5 s.
    assert budget_seconds(60, 4) == 3 and budget_seconds(600, 4) == 7.5
    assert needs_turn(costs, busy, budget=3.0) is needed


def test_no_further_turn_is_taken_where_the_first_one_took_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CpuDevice, "works_by_itself", True)
    monkeypatch.setattr(profiler, "budget_seconds", lambda *of_run: 0.0)
    events = run(experiment(profile_steps=1, **NET), tmp_path / "journal")
    assert len(of_kind(events, "profile")) == 1
    assert of_kind(events, "phase")[-1]["phase"] == "done"
