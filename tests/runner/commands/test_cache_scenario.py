"""The scenario `cache`: compiling timed cold and warm, in real processes."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.checks.refused_experiments import check
from breakeven.runner.errors import InvalidSpec
from breakeven.runner.experiments.queue import find_experiment, submit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import CacheSpec, DataSpec, ExperimentSpec, TrainingSpec
from breakeven.runner.supervision.supervisor import supervise
from breakeven.runner.worker.training.blocks import plan_blocks
from breakeven.storage import queries
from breakeven.storage.comparison.cold_and_warm import cold_and_warm
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.loop import of_kind, run
from tests.helpers.machine import MACHINE

pytestmark = pytest.mark.heavy


def experiment(**changes: object) -> ExperimentSpec:
    return ExperimentSpec(
        name="trial",
        scenario="cache",
        data=DataSpec(num_train_samples=200, num_eval_samples=10, sequence_length=16),
        training=TrainingSpec(batch_size=4),
        cpu_threads=1,
        **changes,  # type: ignore[arg-type]
    )


def test_every_backend_has_a_cold_and_a_warm_run_per_repeat_and_no_control() -> None:
    spec = experiment(backends=("eager", "inductor:scope=blocks"), cache=CacheSpec(repeats=2))
    assert [arm.label for arm in spec.arms] == [
        "baseline",
        *(
            f"{backend}-{cache}-{repeat}"
            for backend in ("eager", "inductor-blocks")
            for repeat in (1, 2)
            for cache in ("cold", "warm")
        ),
    ]
    assert {arm.cache for arm in spec.arms if "warm" in arm.label} == {"warm"}
    assert not spec.takes_turns and spec.num_steps == 20 and spec.evaluates == "never"
    assert ExperimentSpec.from_json(spec.to_json()) == spec
    few = replace(spec.data, num_train_samples=8)
    assert replace(spec, data=few).num_fixed_batches == 2, "few batches are gone over again"


@pytest.mark.parametrize(
    ("steps", "changes", "fewest"),
    [
        (10, {}, 11),  # a turn has 10 steps
        (10, {"block_steps": 4}, None),
        (4, {"block_steps": 4}, 5),
        # An epoch of 8 samples has 2 batches of 4, and ends a turn.
        (3, {"data": DataSpec(num_train_samples=8, num_eval_samples=2)}, None),
        (2, {"data": DataSpec(num_train_samples=8, num_eval_samples=2)}, 3),
    ],
)
def test_fewer_steps_than_can_tell_a_latency_are_refused_when_they_are_asked_for(
    steps: int, changes: dict[str, Any], fewest: int | None
) -> None:
    spec = replace(experiment(), cache=CacheSpec(steps=steps), **changes)
    assert ExperimentSpec.from_json(spec.to_json()) == spec, "one that was run is still read"
    turns = list(plan_blocks(spec))
    assert (len(turns) > 1) == (fewest is None), "steps after the turn that compiles"
    if fewest is None:
        check(spec, MACHINE)
        return
    with pytest.raises(InvalidSpec, match=f"must be at least {fewest}: the first turn") as caught:
        check(spec, MACHINE)
    assert caught.value.field == "cache.steps"


@pytest.mark.usefixtures("fresh_torch")
def test_forward_passes_are_compiled_and_timed_where_inference_is_asked_for(tmp_path: Path) -> None:
    spec = experiment(backends=("eager",), cache=CacheSpec(part="inference", steps=12))
    assert spec.is_inference and not spec.trains
    events = run(spec, tmp_path / "events.jsonl", "eager-cold-1")
    steps = of_kind(events, "step")
    assert [step["compiled"] for step in steps] == [True] + [False] * 11
    assert all(step.get("loss") is None for step in steps), "nothing is learned"
    assert {event["step"] for event in of_kind(events, "compile_metrics")} == {0}


@pytest.mark.slow
def test_inductor_compiles_faster_on_the_caches_that_a_cold_process_left(
    data_dir: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("breakeven.runner.supervision.supervisor.LINGER_SECONDS", 0.0)
    # One layer of the model is enough: what counts is where the code comes from.
    spec = experiment(backends=("inductor:scope=blocks",))
    compared = find_experiment(data_dir, submit(data_dir, spec))
    supervise(data_dir)
    assert [run.state for run in compared.runs] == [RunState.FINISHED] * 3
    store = Store.in_memory(data_dir)
    (latency,) = cold_and_warm(compare(store, compared.experiment_id))
    caches = queries.compile_caches(store, compared.experiment_id).set_index(["label", "layer"])
    store.close()
    assert latency.backend == "inductor:scope=blocks"
    cold, warm = "inductor-blocks-cold-1", "inductor-blocks-warm-1"
    assert caches.loc[(cold, "fx_graph"), ["hits", "misses"]].tolist()[0] == 0
    assert caches.loc[(warm, "fx_graph"), "hits"] == caches.loc[(cold, "fx_graph"), "misses"] > 0
    assert latency.time_saved is not None and latency.time_saved > 0


@pytest.mark.parametrize("is_seeded", [False, True])
def test_a_warm_run_without_caches_says_so(data_dir: DataDir, is_seeded: bool) -> None:
    """So does one by hand whose folder came with some."""
    spec = experiment(backends=("eager",))
    compared = find_experiment(data_dir, submit(data_dir, spec))
    warm = next(run for run in compared.runs if "warm" in run.run_id)
    if is_seeded:
        (warm.compile_cache / "inductor").mkdir(parents=True)
    command = [sys.executable, "-m", "breakeven.runner.worker", str(warm.path)]
    finished = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True)
    assert finished.returncode == 1
    assert "the cold run left no compile caches" in finished.stderr
