"""Cold and warm compile latencies, of recorded runs whose times are known."""

import math
from collections.abc import Iterator

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import CacheSpec, ExperimentSpec
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.cold_and_warm import ColdWarm, cold_and_warm, without_latency
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.index.store import Store
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec

STEP = 0.5


@pytest.fixture
def store(data_dir: DataDir) -> Iterator[Store]:
    data_dir.runs.mkdir(parents=True)
    opened = Store.in_memory(data_dir)
    yield opened
    opened.close()


def spec(repeats: int = 2) -> ExperimentSpec:
    return experiment_spec(
        num_steps=20, scenario="cache", backends=("inductor",), cache=CacheSpec(repeats=repeats)
    )


def record(
    store: Store, label: str, compile_seconds: float, experiment: ExperimentSpec, step: float = STEP
) -> None:
    """A process whose first step compiled for so long; every step takes half a second."""
    recording = Recording(store.data_dir.runs, label, experiment).start()
    recording.block([step + compile_seconds] + [step] * 9, [1.0] * 10, compiled=[0])
    recording.block([step] * 10, [1.0] * 10).end()


def test_repeats_are_paired_and_one_that_is_incomplete_is_left_out(store: Store) -> None:
    experiment = spec(repeats=2)
    record(store, "inductor-cold-1", 8.0, experiment)
    record(store, "inductor-cold-2", 9.0, experiment)
    record(store, "inductor-warm-2", 3.0, experiment)
    store.ingest_all()
    (latency,) = cold_and_warm(compare(store, EXPERIMENT_ID))
    assert (latency.backend, latency.cold_seconds, latency.warm_seconds) == (
        "inductor",
        (9.0,),
        (3.0,),
    )
    assert (latency.ratio.median, latency.ratio.low) == (3.0, None)
    assert latency.cold_break_even is None, "there is no baseline"


def test_a_warm_process_that_compiled_in_no_time_has_no_ratio() -> None:
    latency = ColdWarm(backend="x", cold_seconds=(10.0,), warm_seconds=(0.0,))
    assert latency.ratio is None and latency.time_saved == 1.0
    latency = ColdWarm(backend="x", cold_seconds=(10.0,), warm_seconds=(0.5,))
    assert latency.ratio is not None and latency.ratio.median == 20.0


def recorded(store: Store, num_repeats: int, baseline_step: float) -> ColdWarm:
    """Every pair compiles for 8 s cold and 2 s warm."""
    experiment = spec(repeats=num_repeats)
    record(store, "baseline", 0.0, experiment, baseline_step)
    for repeat in range(1, num_repeats + 1):
        record(store, f"inductor-cold-{repeat}", 8.0, experiment)
        record(store, f"inductor-warm-{repeat}", 2.0, experiment)
    store.ingest_all()
    (latency,) = cold_and_warm(compare(store, EXPERIMENT_ID))
    return latency


def test_break_even_is_known_cold_and_warm_in_steps_time_and_epochs(store: Store) -> None:
    # 0.25 s saved per step: 8 s are earned in 32 steps, 2 s in 8; an epoch has 20 steps.
    latency = recorded(store, num_repeats=6, baseline_step=0.75)
    cold, warm = latency.cold_break_even, latency.warm_break_even
    assert (cold.steps, cold.high, warm.steps) == (32.0, 32.0, 8.0)
    assert (cold.seconds, warm.seconds) == (8 + 32 * 0.5, 2 + 8 * 0.5)
    assert (cold.epochs, warm.epochs) == (1.6, 0.4)


def test_what_saves_nothing_never_pays_off_not_even_on_filled_caches(store: Store) -> None:
    latency = recorded(store, num_repeats=6, baseline_step=STEP)
    for even in (latency.cold_break_even, latency.warm_break_even):
        assert (even.verdict, even.steps) == ("never", math.inf)


def test_the_interval_of_break_even_reaches_over_all_compile_latencies() -> None:
    latency = ColdWarm(
        backend="x",
        cold_seconds=(8.0, 10.0, 12.0),
        warm_seconds=(2.0, 2.0, 2.0),
        gains=(0.25,) * 6,
        speed_verdict="faster",
        baseline_seconds=0.75,
    )
    cold = latency.cold_break_even
    assert (cold.low, cold.steps, cold.high, cold.num_latencies) == (32.0, 40.0, 48.0, 3)


def test_the_terminal_shows_saved_time(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    """Single processes are not judged but as pairs: twenty steps of each would prove nothing."""
    experiment = spec(repeats=1)
    record(store, "baseline", 0.0, experiment, step=0.75)
    record(store, "inductor-cold-1", 8.0, experiment)
    record(store, "inductor-warm-1", 2.0, experiment)
    command = ["show", "--wide", EXPERIMENT_ID, "--data-folder", str(store.data_dir.path)]
    assert main(command) == 0
    said = "filled caches, inductor: 2.00 s instead of 8.00 s, 75.0 % of the compile time saved; "
    pays = (
        "break-even cold: inconclusive, the saving may be chance; if it is real, 32 steps; "
        "warm: inconclusive, the saving may be chance; if it is real, 8 steps"
    )
    printed = capsys.readouterr().out
    assert f"{said}repeats: 1; {pays}" in printed
    assert "warning" not in printed and "parity" not in printed
    assert "control's run folder" not in printed  # this scenario never has one
    header = next(line for line in printed.splitlines() if line.startswith("run "))
    assert header.split() == [
        "run",
        "state",
        "step",
        "samples/s",
        "compile",
        "memory",
        "final",
        "loss",
    ]


def test_a_plan_has_the_first_start_and_later_ones(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    """1,000 steps of 0.5 s with 8 or 2 s of compiling, or of 0.75 s without a compiler."""
    recorded(store, num_repeats=6, baseline_step=0.75)
    command = ["show", "--wide", EXPERIMENT_ID, "--data-folder", str(store.data_dir.path)]
    assert main([*command, "--plan", "1000 steps"]) == 0
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("plan for")]
    assert lines == [
        "plan for 1,000 steps: inductor: 8 min 28 s at the first start, 8 min 22 s at "
        "later ones with filled caches, 12 min without a compiler."
    ]


def test_missing_latencies_are_explained(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = experiment_spec(
        num_steps=10, scenario="cache", backends=("inductor", "eager"), cache=CacheSpec(steps=10)
    )
    runs = store.data_dir.runs
    # One turn each: the compiled one has no step after it, the other never compiled.
    compiled = Recording(runs, "inductor-cold-1", experiment).start()
    compiled.block([8.5] + [STEP] * 9, [1.0] * 10, compiled=[0]).end()
    idle = Recording(runs, "eager-cold-1", experiment)
    idle.captures = False
    idle.start().block([STEP] * 10, [1.0] * 10).end()
    going_on = Recording(runs, "inductor-warm-1", experiment).start()
    going_on.block([8.5] + [STEP] * 9, [1.0] * 10, compiled=[0])
    store.ingest_all()
    assert cold_and_warm(compare(store, EXPERIMENT_ID)) == []
    silent = [
        (run.label, run.graphs.has_compiled)
        for run in without_latency(compare(store, EXPERIMENT_ID))
    ]
    assert silent == [("inductor-cold-1", True), ("eager-cold-1", False)]
    main(["show", "--wide", EXPERIMENT_ID, "--data-folder", str(store.data_dir.path)])
    printed = capsys.readouterr().out
    assert "inductor-cold-1 finished, but no step came after the turns that compiled" in printed
    assert "eager-cold-1 finished without having compiled anything." in printed
