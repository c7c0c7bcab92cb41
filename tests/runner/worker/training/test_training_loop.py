"""The training loop in this process, against what a person would write by hand."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pytest
import torch

from breakeven.runner.files import write_atomically
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.states import RunState
from breakeven.runner.protocol.turns import Turn
from breakeven.runner.specs.experiment import PlanSpec, SpeedSpec, TrainingSpec
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.worker.data.splits import EpochBatches
from breakeven.runner.worker.device import base
from breakeven.runner.worker.device.base import WallClock
from breakeven.runner.worker.device.device_kinds import CpuDevice
from breakeven.runner.worker.model.loaded_workload import load_workload
from breakeven.runner.worker.model.transformers_models import perturb, weights_sha256
from breakeven.runner.worker.training import step_rows, training_loop
from tests.helpers.journals import GONE
from tests.helpers.loop import (
    NET,
    TurnsOnPaper,
    experiment,
    folder_of,
    of_kind,
    run,
    torch_afresh,
)

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("fresh_torch")


Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
def said() -> list[str]:
    """The messages about turns of the training below."""
    return []


@pytest.fixture(scope="module")
def plain(said: list[str], tmp_path_factory: pytest.TempPathFactory) -> Events:
    """The events of a baseline."""
    journal, turns = tmp_path_factory.mktemp("plain") / "e.jsonl", TurnsOnPaper()
    with torch_afresh():
        events = run(experiment(**NET), journal, turns=turns)
    said += turns.said
    assert {json.loads(line)["v"] for line in journal.read_text().splitlines()} == {1}
    return events


def test_every_step_of_every_epoch_is_recorded(plain: Events, said: list[str]) -> None:
    steps, blocks = of_kind(plain, "step"), of_kind(plain, "block")
    assert [step["step"] for step in steps] == list(range(12))
    # Blocks of 4 do not straddle epochs of 6: 4 + 2, twice.
    assert [step["round"] for step in steps] == [0] * 4 + [1] * 2 + [2] * 4 + [3] * 2
    assert [step["epoch"] for step in steps] == [0] * 6 + [1] * 6
    assert [block["num_steps"] for block in blocks] == [4, 2, 4, 2]
    assert [(e["epoch"], e["step"]) for e in of_kind(plain, "evaluation")] == [(0, 6), (1, 12)]
    assert said == ["ready", "done", "done", "done", "finished"]
    for block in blocks:
        seconds = sum(step["seconds"] for step in steps if step["round"] == block["round"])
        assert block["seconds"] == pytest.approx(seconds)


DECIDED = Ending(cause="decided", target_width=0.02, budget=500, to="baseline")


class UntilDecided(TurnsOnPaper):
    """Turns of which the last one is in round 6."""

    def wait(self) -> Turn | None:
        turn = super().wait()
        return turn and replace(turn, again=True, last=DECIDED if turn.round == 6 else None)


def test_a_training_that_is_too_short_starts_again_with_the_same_weights_for_its_times_alone(
    plain: Events, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: list[float] = []
    write = step_rows.BlockRecorder.write

    def record(self: Any, block: Any, turn: Any, steps: Any, cost: Any) -> None:
        losses.extend(map(float, steps.losses))
        write(self, block, turn, steps, cost)

    monkeypatch.setattr(step_rows.BlockRecorder, "write", record)
    turns = UntilDecided()
    events = run(experiment(**NET, plan=PlanSpec(steps=500)), tmp_path / "e.jsonl", turns=turns)
    first = [step["loss"] for step in of_kind(plain, "step")]
    assert [step["loss"] for step in of_kind(events, "step")] == first
    # Four blocks of the first training, and three of the second one, whose losses are the same.
    assert losses == pytest.approx([*first, *first[:10]], rel=1e-6)
    blocks = [(block["first_step"], block["num_steps"]) for block in of_kind(events, "block")]
    assert blocks == [(0, 4), (4, 2), (6, 4), (10, 2), (12, 4), (16, 2), (18, 4)]
    assert [event["step"] for event in of_kind(events, "evaluation")] == [6, 12]
    (stopped,) = of_kind(events, "stopped")
    assert (stopped["step"], stopped["ending"]["cause"]) == (12, "decided")
    assert turns.said == ["ready", *["done"] * 6, "finished"]


def test_a_training_that_is_continued_starts_again_in_a_new_process(tmp_path: Path) -> None:
    """It is timed for seven more blocks: a training and three blocks of another one."""
    journal, spec = tmp_path / "e.jsonl", experiment(**NET)
    before = run(spec, journal)
    folder = folder_of(journal)
    folder.events_file.write_bytes(journal.read_bytes())
    folder.write_claim(Claim.by(GONE))
    ExitRecords().write(folder, RunState.FINISHED, "", 0)
    write_atomically(folder.plan_file, PlanSpec(steps=500).to_json())
    folder.reopen()
    turns = UntilDecided()
    later = run(spec, folder.events_file, turns=turns, folder=folder)[len(before) :]
    assert not {"step", "evaluation", "stopped", "random_numbers"} & {e["kind"] for e in later}
    (resumed,) = of_kind(later, "resumed")
    assert (resumed["step"], resumed["attempt"]) == (12, 2)
    blocks = [(block["first_step"], block["num_steps"]) for block in of_kind(later, "block")]
    assert blocks == [(12, 4), (16, 2), (18, 4), (22, 2), (24, 4), (28, 2), (30, 4)]
    assert turns.said == ["ready", *["done"] * 6, "finished"]


@pytest.mark.parametrize("scenario", ["train", "tune"])
def test_a_run_with_larger_batches_trains_as_an_experiment_with_this_batch_size(
    tmp_path: Path, scenario: Any
) -> None:
    changes: dict[str, Any] = {"scenario": scenario, "speed": SpeedSpec(batches=2)}
    spec = experiment(backends=("none:batch_times=2",), **NET, **changes)
    # Two turns of the search; three of the training, which do not straddle epochs of 3.
    scaled = run(spec, tmp_path / "a", "none-batch_times_2", TurnsOnPaper(num_turns=3))
    larger = replace(
        spec, backends=(), training=replace(spec.training, batch_size=8), block_steps=2
    )
    expected = run(larger, tmp_path / "b", turns=TurnsOnPaper(num_turns=3))
    for kind, names in (
        ("step", ("step", "epoch", "round", "loss")),
        ("block", ("first_step", "num_steps", "warm_up")),
        ("evaluation", ("step", "epoch", "loss")),
    ):
        assert [[row[name] for name in names] for row in of_kind(scaled, kind)] == [
            [row[name] for name in names] for row in of_kind(expected, kind)
        ]
    (workload,), (expected_workload,) = of_kind(scaled, "workload"), of_kind(expected, "workload")
    differ = {name for name in workload if workload[name] != expected_workload[name]} - {
        "seq",
        "time",
    }
    assert differ == set()
    assert workload["samples_per_step"] == 8 and len(of_kind(scaled, "step")) in (5, 6)


def test_the_losses_are_those_of_a_loop_written_by_hand(plain: Events) -> None:
    recorded = [step["loss"] for step in of_kind(plain, "step")]
    workload = load_workload(experiment(**NET))
    data, model = workload.data, workload.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    by_hand: list[float] = []
    for epoch in range(2):
        generator = torch.Generator().manual_seed(7 * 1_000_003 + epoch)
        order = torch.randperm(26, generator=generator)
        for start in range(0, 24, 4):
            torch.manual_seed(8 * 7_654_321 + len(by_hand))
            indices = order[start : start + 4]
            inputs = {name: tensor[indices] for name, tensor in data.train.inputs.items()}
            loss = model(**inputs, labels=data.train.labels[indices]).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            by_hand.append(loss.item())
    assert recorded == by_hand


def test_the_control_starts_beside_the_baseline_and_draws_the_same_numbers(
    plain: Events, tmp_path: Path
) -> None:
    baseline = of_kind(plain, "step")
    control = of_kind(run(experiment(**NET), tmp_path / "control", "control"), "step")
    first = abs(baseline[0]["loss"] - control[0]["loss"])
    assert 0 < first < 1e-3  # another dropout mask would move the loss by about 1e-2


def test_the_record_names_the_workload_and_the_environment(plain: Events) -> None:
    (workload,) = of_kind(plain, "workload")
    assert (workload["num_steps"], workload["samples_per_step"]) == (12, 4)
    assert "Each epoch leaves out 2 samples that do not fill a batch." in workload["notes"]
    (environment,) = of_kind(plain, "environment")
    assert environment["versions"]["torch"] == torch.__version__
    assert environment["cpu_threads"] == 1


def test_a_step_of_several_micro_batches_counts_all_samples_and_records_its_learning_rate(
    tmp_path: Path,
) -> None:
    training = replace(
        experiment().training, gradient_accumulation=3, scheduler="linear", clip_norm=1.0
    )
    events = run(experiment(**NET, training=training), tmp_path / "e.jsonl")
    (workload,), steps = of_kind(events, "workload"), of_kind(events, "step")
    # 6 batches of 4 in windows of 3 make 2 steps an epoch, of 12 samples each.
    assert (workload["num_steps"], workload["samples_per_step"]) == (4, 12)
    # From 1e-3 in 4 equal steps to 0.
    assert [made["learning_rate"] for made in steps] == pytest.approx([1e-3, 7.5e-4, 5e-4, 2.5e-4])
    assert all(step["gradient_norm"] > 0 for step in steps)


def test_compile_events_carry_step_time_and_reason(tmp_path: Path) -> None:
    events = run(experiment(**NET), tmp_path / "e.jsonl", "eager")
    started, ended = of_kind(events, "compile_started"), of_kind(events, "compile_ended")
    assert len(started) == len(ended) > 0
    assert {event["step"] for event in started if event["phase"] == "training"} == {0}
    whole_step = of_kind(events, "compile_metrics")[0]
    assert whole_step["function"] == "iterate" and whole_step["total_seconds"] > 0
    breaks = [event for event in of_kind(events, "graph_break") if event["phase"] == "training"]
    (backward,) = (event for event in breaks if "backward" in event["reason"])
    assert backward["location"].startswith("runner/worker/step/stepping.py:")
    assert backward["count"] == 1 and whole_step["file"] == "runner/worker/step/stepping.py"


def test_all_runs_start_from_the_same_weights_and_the_seed_changes_them() -> None:
    other = replace(experiment(), training=TrainingSpec(seed=8))
    hashes = [
        weights_sha256(load_workload(spec).model) for spec in (experiment(), experiment(), other)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_the_perturbation_is_relative_and_of_the_asked_size() -> None:
    model = torch.nn.Linear(100, 100)
    torch.nn.init.constant_(model.weight, 2.0)
    perturb(model, 1e-5, seed=0)
    # 10,000 draws: their standard deviation is known to about 1 %.
    deviation = (model.weight / 2.0 - 1).std().item()
    assert deviation == pytest.approx(1e-5, rel=0.05)


def test_autocast_trains_in_bfloat16(plain: Events, tmp_path: Path) -> None:
    training = replace(experiment().training, precision="bf16", max_steps=1)
    mixed = of_kind(run(experiment(**NET, training=training), tmp_path / "e.jsonl"), "step")
    assert 0 < abs(of_kind(plain, "step")[0]["loss"] - mixed[0]["loss"]) < 0.05


def test_the_clock_gives_each_step_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 10.5, 12.0, 13.0, 13.25])
    monkeypatch.setattr(base, "perf_counter", lambda: next(times))
    clock = WallClock()
    clock.start()
    clock.mark()
    clock.mark()
    clock.skip()
    clock.mark()
    assert clock.read() == [0.5, 1.5, 0.25]


def test_peak_memory_is_that_of_the_block_alone() -> None:
    device = CpuDevice(torch.device("cpu"))
    device.reset_memory()
    before = device.memory_use().peak_bytes
    if before is None:
        pytest.skip("this system does not let a process reset its peak")
    block = torch.ones(50_000_000)  # 200 MB
    high = device.memory_use().peak_bytes
    del block
    device.reset_memory()
    low = device.memory_use().peak_bytes
    assert high is not None and low is not None
    assert high - before > 190e6 and high - low > 190e6


def test_the_samples_of_an_epoch_are_gone_before_the_next_are_put_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a data set would need its memory three times over."""
    epochs: WeakSet[EpochBatches] = WeakSet()
    others_alive = []

    class Watched(EpochBatches):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            others_alive.append(len(epochs))
            epochs.add(self)
            super().__init__(*arguments, **keywords)

    monkeypatch.setattr(training_loop, "EpochBatches", Watched)
    run(experiment(**NET), tmp_path / "e.jsonl")
    assert others_alive == [0, 0]
