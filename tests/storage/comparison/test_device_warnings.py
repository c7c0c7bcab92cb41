"""What befell the device, from journals to the sentences beside the numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.place import Parallel
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from tests.helpers.comparisons import compared, device_warnings_of, minor_warnings_of, warnings_of
from tests.helpers.device_journals import SAMPLE
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

pytestmark = pytest.mark.heavy

SPEC = experiment_spec(num_steps=110, block_steps=10, controls=0)
CUDA = {"gpu_memory_bytes": 80 * 2**30, "cpu_threads": 8, "usable_cpus": 16}
CPU = {"cpu_threads": 2, "usable_cpus": 2}
CALM_GPU = SAMPLE | {"throttled_seconds": {"power cap": 0.0}, "power_watts": 400.0}
# In a block of one second on two CPUs the run itself uses one.
CALM_CPU = {
    "wall_seconds": 1.0,
    "cpus": 2,
    "own_cpu_seconds": 1.0,
    "busy_cpu_seconds": 1.02,
    "stolen_cpu_seconds": 0.0,
    "throttled_periods": 0,
    "cpu_frequency_mhz": 3000.0,
    "processes": [],
}
Sample = Callable[[int], dict[str, Any]]
"""Number of the block to the fields of its sample."""


def record(
    folder: Path,
    environment: dict[str, Any],
    samples: dict[str, Sample],
    before: dict[str, Any] | None = None,
    spec: ExperimentSpec = SPEC,
    **own: dict[str, Any],
) -> DataDir:
    """Runs of eleven blocks each: ten steady ones after the first. `own`: by label, what is special
    about the environment of a run."""
    data_dir = DataDir(folder / "data")
    losses = falling_losses(spec.num_steps)
    for label, sample in samples.items():
        recording = Recording(data_dir.runs, label, spec).claim()
        recording.start(environment=environment | own.get(label, {}))
        if before is not None:
            recording.device(**before)
        for block in range(11):
            compiles = label != "baseline" and block == 0
            recording.block(
                [0.1] * 10, losses[block * 10 : block * 10 + 10], compiled=[0] if compiles else ()
            )
            recording.device(**sample(block))
        recording.end()
    return data_dir


def warnings_that_begin(comparison: Comparison, beginning: str) -> list[str]:
    return [warning for warning in warnings_of(comparison) if warning.startswith(beginning)]


def always(**fields: Any) -> Sample:
    return lambda block: fields


def cases(count: int) -> tuple[ExperimentSpec, list[str]]:
    """An experiment of so many backends, and their labels."""
    spec = replace(SPEC, backends=tuple(f"inductor:case={case}" for case in range(count)))
    return spec, [f"inductor-case_{case}" for case in range(count)]


def test_a_calm_cpu_raises_no_doubt(tmp_path: Path) -> None:
    samples = dict.fromkeys(("baseline", "inductor"), always(**CALM_CPU))
    comparison = compared(record(tmp_path, CPU, samples))
    (warning,) = warnings_of(comparison)
    assert "no control" in warning and minor_warnings_of(comparison) == ()
    assert all(device_warnings_of(result) == () for result in comparison.results)


@pytest.mark.parametrize(("parallel", "energy"), [("no", 3.0), ("ddp", None)])
def test_energy_counts_per_step(tmp_path: Path, parallel: Parallel, energy: float | None) -> None:
    """The first block counts for nothing: 10 blocks of 10 steps at 30 J and one at 900. Some blocks
    end before the counter advances, others have no counter. With `ddp` one of several devices was
    watched."""
    several = {"devices": ("cuda:0", "cuda:1"), "parallel": parallel}
    spec = replace(SPEC, backends=("inductor", "eager"), **({} if parallel == "no" else several))
    samples = {
        "baseline": lambda block: CALM_GPU | {"energy_joules": 900.0 if block == 0 else 30.0},
        "inductor": lambda block: CALM_GPU | {"energy_joules": 0.0 if block % 2 else None},
    }
    warnings_that_begin = compared(record(tmp_path, CUDA, samples, spec=spec))
    measured = warnings_that_begin.result_of("baseline").value("energy_per_step")
    assert measured == (None if energy is None else pytest.approx(energy))
    assert warnings_that_begin.result_of("inductor").value("energy_per_step") is None


def test_busy_cpus_give_a_warning_only_where_they_are_the_device(tmp_path: Path) -> None:
    spec, labels = cases(4)
    # The last one is CUDA, before journals told the type.
    own = ({"device_type": "cpu"}, {"device_type": "mps"}, {}, {"gpu_memory_bytes": 2**34})
    busy = always(**CALM_CPU | {"busy_cpu_seconds": 1.9, "processes": None})
    samples = dict.fromkeys(("baseline", *labels), busy)
    data_dir = record(tmp_path, CPU, samples, spec=spec, **dict(zip(labels, own, strict=True)))
    (doubted,) = warnings_that_begin(
        compared(data_dir), "Other processes took CPU time while steady blocks ran"
    )
    assert [label for label in labels if label in doubted] == [labels[0], labels[2]]


def test_throttling_counts_at_the_end_of_a_block_and_within_it(tmp_path: Path) -> None:
    def throttling(block: int) -> dict[str, Any]:
        if block == 3:
            return CALM_GPU | {"throttle_reasons": ["power cap"]}
        # For 0.2 of 1.0 seconds in block 4, for 0.05 in all others: too short to count.
        return CALM_GPU | {"throttled_seconds": {"thermal slowdown": 0.2 if block == 4 else 0.05}}

    samples = {"baseline": always(**CALM_GPU), "inductor": throttling}
    comparison = compared(record(tmp_path, CUDA, samples))
    in_blocks = "in 2 of 10 steady blocks (power cap, thermal slowdown)."
    assert warnings_that_begin(comparison, f"The device throttled its clocks: inductor {in_blocks}")
    assert [device_warnings_of(result) for result in comparison.results] == [
        (),
        (f"The device throttled its clocks: {in_blocks}",),
    ]


def test_a_device_may_tell_only_some_of_why_it_throttles(tmp_path: Path) -> None:
    capped = {"power cap": 0.5}
    reports = [
        (None, None, None),
        ([], None, []),
        (None, capped, ["power cap"]),
        (["power cap"], capped, ["power cap"]),
    ]

    def sample(block: int) -> dict[str, Any]:
        reasons, seconds, _ = reports[block % 4]
        return CALM_GPU | {"throttle_reasons": reasons, "throttled_seconds": seconds}

    samples = dict.fromkeys(("baseline", "inductor"), sample)
    with Store.in_memory(record(tmp_path, CUDA, samples)) as store:
        throttled_by = list(queries.device_samples(store, EXPERIMENT_ID)["throttled_by"])
    assert throttled_by == [reports[block % 4][2] for block in range(11)] * 2


PYTHON = {"pid": 4711, "name": "python", "memory_bytes": 2 * 2**30}
MAKE = {"pid": 12, "name": "make", "memory_bytes": None}
TAKEN = CALM_CPU | {"busy_cpu_seconds": 2.0, "processes": [MAKE]}
UNLOOKED = CALM_GPU | {"processes": None, "throttled_periods": None}
LOOKED = CALM_GPU | {"processes": [PYTHON], "throttled_periods": 1}
SAID: dict[str, tuple[Any, ...]] = {
    # Of 10 steady blocks 4 have half of the CPU time taken: 4 x 1.0 of 20 seconds are 20 %.
    "processes on the CPU count over all steady blocks together": (
        CPU,
        lambda block: TAKEN if block == 5 else CALM_CPU | {"busy_cpu_seconds": 1.0},
        lambda block: TAKEN if block in (0, 3, 5, 7, 9) else CALM_CPU | {"busy_cpu_seconds": 1.0},
        "Other processes took CPU time while steady blocks ran: inductor 20.0 % of 2 CPUs; "
        "seen: make (pid 12). End them",
    ),
    # Every other block had no time for that.
    "samples that looked for processes and quotas": (
        CUDA,
        always(**CALM_GPU),
        lambda block: LOOKED if block == 4 else UNLOOKED,
        "Other processes were on the device: inductor in 1 of 1 samples; seen",
        "The CPU quota of the container throttled runs: inductor in 1 of 1 steady blocks.",
    ),
    "another clock": (
        CUDA,
        always(**CALM_GPU),
        always(**CALM_GPU | {"sm_clock_mhz": 1881}),
        "The device's clock differed from the baseline's: inductor 1,881 MHz against 1,980 MHz "
        "(-5.0 %)",
    ),
    "stolen time, a quota, another frequency, more threads than CPUs": (
        CPU | {"cpu_threads": 4},
        always(**CALM_CPU),
        always(
            **CALM_CPU
            | {"stolen_cpu_seconds": 0.1, "throttled_periods": 3, "cpu_frequency_mhz": 2400.0}
        ),
        "The host of this virtual machine gave CPU time to others while steady blocks ran: "
        "inductor 5.0 % of the CPU time.",
        "The CPU quota of the container throttled runs: inductor in 10 of 10 steady blocks.",
        "The CPU's frequency differed from the baseline's: inductor 2,400 MHz against "
        "3,000 MHz (-20.0 %).",
        "There were more threads than CPUs that the run may use: baseline and inductor 4 threads "
        "on 2 CPUs",
    ),
}


@pytest.mark.parametrize("case", SAID)
def test_what_befell_the_device_is_told_in_figures(tmp_path: Path, case: str) -> None:
    environment, baseline, inductor, *said = SAID[case]
    samples = {"baseline": baseline, "inductor": inductor}
    comparison = compared(record(tmp_path, environment, samples))
    assert all(warnings_that_begin(comparison, beginning) for beginning in said)


def test_what_no_number_of_a_gpu_rests_on_is_not_mentioned(tmp_path: Path) -> None:
    """The first block is not steady, so no number rests on it; a clock that hardly differs; a busy
    server."""
    spec, labels = cases(3)
    first = {"throttle_reasons": ["power cap"]}
    seen = (
        lambda block: CALM_GPU | (first if block == 0 else {}),
        always(**CALM_GPU | {"sm_clock_mhz": 1950}),
        always(**CALM_CPU | CALM_GPU | {"busy_cpu_seconds": 2.0}),
    )
    samples = {"baseline": always(**CALM_GPU), **dict(zip(labels, seen, strict=True))}
    comparison = compared(record(tmp_path, CUDA, samples, spec=spec))
    (warning,) = warnings_of(comparison)
    assert "no control" in warning and minor_warnings_of(comparison) == ()
    assert all(device_warnings_of(result) == () for result in comparison.results)


def test_processes_of_others_are_named_with_what_they_hold(tmp_path: Path) -> None:
    shared = CALM_GPU | {"processes": [PYTHON]}
    samples = {
        "baseline": always(**CALM_GPU),
        "inductor": lambda block: shared if block < 5 else CALM_GPU,
    }
    comparison = compared(record(tmp_path, CUDA, samples, before=shared))
    # Eleven blocks and the sample before them.
    assert warnings_that_begin(
        comparison,
        "Other processes were on the device: baseline in 1 of 12 samples, already before the "
        "first block, inductor in 6 of 12 samples, already before the first block; seen: python "
        "(pid 4711, 2.00 GiB). End them",
    )


def test_warming_up_is_a_minor_warning_and_a_serious_one_in_sequence(tmp_path: Path) -> None:
    """Steady blocks 1 to 10 at 42 to 60 degrees: fifths of 20 samples, means 43 and 59."""

    def warming(block: int) -> dict[str, Any]:
        return CALM_GPU | {"temperature_celsius": 40 + 2 * block}

    said = "The device warmed up from"
    samples = dict.fromkeys(("baseline", "inductor"), warming)
    by_turns = compared(record(tmp_path / "turns", CUDA, samples))
    assert not warnings_that_begin(by_turns, said)
    assert any(note.startswith(said) for note in minor_warnings_of(by_turns))
    spec = replace(SPEC, schedule="sequential")
    alone = compared(record(tmp_path / "alone", CUDA, samples, spec=spec))
    assert warnings_that_begin(alone, said)


def test_what_could_not_be_recorded_is_noted_once(tmp_path: Path) -> None:
    """Among that whether other processes used the device, which is no doubt."""
    environment = CUDA | {"notes": ["Clocks were not recorded: why not."]}
    unknown = always(**CALM_GPU | {"processes": None})
    data_dir = record(tmp_path, environment, dict.fromkeys(("baseline", "inductor"), unknown))
    comparison = compared(data_dir)
    assert not warnings_that_begin(comparison, "Other processes")
    strangers, clocks = sorted(minor_warnings_of(comparison), reverse=True)
    assert strangers.startswith("It is not known whether other processes used the device")
    assert clocks == "Clocks were not recorded: why not."
    with Store.in_memory(data_dir) as store:
        assert queries.device_samples(store, EXPERIMENT_ID)["others_memory_bytes"].isna().all()


def test_samples_of_steps_that_are_done_again_count_once(tmp_path: Path) -> None:
    data_dir = DataDir(tmp_path / "data")
    losses = falling_losses(SPEC.num_steps)
    recording = Recording(data_dir.runs, "baseline", SPEC).claim().start().device(**CALM_GPU)
    for block in range(3):
        recording.block([0.1] * 10, losses[block * 10 : block * 10 + 10]).device(**CALM_GPU)
    recording.checkpoint().resume(20).block([0.1] * 10, losses[20:30]).device(**CALM_GPU).end()
    with Store.in_memory(data_dir) as store:
        samples = queries.device_samples(store, EXPERIMENT_ID)
    assert list(samples["first_step"].dropna()) == [0, 10, 20]
    assert list(samples["steady"]) == [False, False, True, False]
