"""Python's garbage collector works between steps, never within one that is timed."""

import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import ref

import pytest
from torch._dynamo.backends import registry

from breakeven.runner.specs.experiment import ExperimentSpec, SpeedSpec
from breakeven.runner.worker.device.base import WallClock
from breakeven.runner.worker.device.device_kinds import CpuDevice
from breakeven.runner.worker.training import block_timer
from breakeven.runner.worker.training.block_timer import Collector
from tests.helpers.loop import NET, UNFREEZE, experiment, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")
TRAINING = experiment(**NET)
FORWARD_PASSES = experiment(
    **NET,
    scenario="speed",
    speed=SpeedSpec(part="inference", batches=3, warm_up_blocks=1, min_rounds=6, max_rounds=6),
)


@pytest.fixture
def timeline(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The calls of clocks and the garbage collections, in their order. Left to itself, the
    collector would run in every step."""
    calls: list[str] = []

    class Watched(WallClock):
        def start(self) -> None:
            calls.append("start")
            super().start()

        def mark(self) -> None:
            super().mark()
            calls.append("step" if not gc.isenabled() else "step with the collector on")

        def skip(self) -> None:
            calls.append("skip")
            super().skip()

        def read(self) -> list[float]:
            calls.append("read")
            return super().read()

    def on_collection(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            calls.append("full collection" if info["generation"] == 2 else "collection")

    monkeypatch.setattr(CpuDevice, "clock", lambda self: Watched())
    thresholds = gc.get_threshold()
    gc.set_threshold(100, 10_000, 10_000)
    gc.callbacks.append(on_collection)
    yield calls
    gc.callbacks.remove(on_collection)
    gc.set_threshold(*thresholds)


@pytest.mark.parametrize("spec", [TRAINING, FORWARD_PASSES], ids=["training", "forward passes"])
def test_there_is_a_collection_before_every_block_and_none_inside(
    tmp_path: Path, timeline: list[str], spec: ExperimentSpec
) -> None:
    events = run(spec, tmp_path / "e.jsonl")
    starts = [place for place, what in enumerate(timeline) if what == "start"]
    assert len(starts) == len(of_kind(events, "block")) >= 3
    for start, block in zip(starts, of_kind(events, "block"), strict=True):
        assert timeline[start - 1] == "full collection"
        inside = timeline[start + 1 : timeline.index("read", start)]
        assert inside == ["step"] * block["num_steps"]
    assert gc.isenabled()


def test_in_a_long_block_collections_stand_between_steps_and_are_part_of_none(
    tmp_path: Path, timeline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_timer, "EVERY_STEPS", 2)
    run(replace(TRAINING, block_steps=5), tmp_path / "e.jsonl")
    start = timeline.index("start")
    between = ["full collection", "skip"]
    steps = ["step", "step", *between, "step", "step", *between, "step"]
    assert timeline[start + 1 : timeline.index("read", start)] == steps


@pytest.mark.slow
def test_while_something_compiles_the_collector_is_as_in_anybodys_process(
    tmp_path: Path, timeline: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gc, "unfreeze", UNFREEZE)
    states = []

    def watched(graph: Any, inputs: Any) -> Any:
        states.append((gc.isenabled(), gc.get_freeze_count()))
        return graph.forward

    registry.register_backend(watched, name="watched")
    run(experiment(**NET, backends=("watched",)), tmp_path / "e.jsonl", "watched")
    assert states and set(states) == {(True, 0)}
    steps = [what for what in timeline if what.startswith("step")]
    assert steps == ["step"] * 12


def test_what_only_cycles_hold_is_gone_at_the_next_block_or_when_ones_own_code_collects() -> None:
    class Node:
        def __init__(self) -> None:
            self.me = self

    collector = Collector()
    try:
        with collector.held_back():
            at_once = ref(Node())
            gc.collect()
            later = ref(Node())
            assert (at_once() is None, later() is None) == (True, False)
        with collector.held_back():
            assert later() is None
            assert gc.get_freeze_count() > 0 and not gc.isenabled()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
