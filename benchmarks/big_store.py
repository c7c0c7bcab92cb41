"""Makes a data folder of any size within seconds: one experiment, copied under other ids.

An experiment of six runs is recorded as a worker would, with a sample of the device for each block
and ten evaluations. Its copies have ids and losses of their own, so that no two journals are alike.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import Recording, experiment_spec

BACKENDS = {"inductor": 0.6, "aot_eager": 1.02, "eager": 1.0, "cudagraphs": 0.8}
"""Step time under each backend, relative to the baseline's."""
NUM_RUNS = 2 + len(BACKENDS)
"""Runs of an experiment: baseline, control and backends."""
BLOCK_STEPS = 10
NUM_EVALUATIONS = 10
LOSS = re.compile(rb'"loss":([0-9.]+)')


def experiment_id(number: int) -> str:
    """Ids follow each other like experiments that were started one every minute."""
    days, minute = divmod(number, 1440)
    return f"202601{1 + days:02d}-{minute // 60:02d}{minute % 60:02d}00-000000-{number % 65536:04x}"


def make_store(data_dir: DataDir, num_experiments: int, num_steps: int, first: int = 0) -> None:
    """Adds experiments of six runs of `num_steps` steps; `first`: number of earlier experiments."""
    template = data_dir.path / "template"
    pattern = experiment_id(99_999)
    record(template, num_steps, pattern)
    for number in range(first, first + num_experiments):
        for run in sorted(template.iterdir()):
            copy_run(run, data_dir.runs, pattern, number)
    shutil.rmtree(template)


def copy_run(run: Path, runs: Path, pattern: str, number: int) -> None:
    """A copy of a run folder under the id of another experiment, with its own losses."""
    new_id = experiment_id(number)
    folder = runs / run.name.replace(pattern, new_id)
    folder.mkdir(parents=True)
    for file in run.iterdir():
        content = file.read_bytes().replace(pattern.encode(), new_id.encode())
        if file.name == "events.jsonl":
            content = varied(content, 1 + 1e-4 * number)
        (folder / file.name).write_bytes(content)


def varied(journal: bytes, factor: float) -> bytes:
    return LOSS.sub(lambda found: b'"loss":%.9f' % (float(found[1]) * factor), journal)


def record(runs: Path, num_steps: int, experiment: str) -> None:
    """A finished experiment of six runs, which all learn the same."""
    spec = experiment_spec(num_steps, BLOCK_STEPS, backends=tuple(BACKENDS))
    random = np.random.default_rng(0)
    losses = 2 * np.exp(-np.arange(num_steps) / num_steps) + random.normal(0, 0.05, num_steps)
    for variant in spec.variants:
        apart = 0.0 if variant.role == "baseline" else 1e-6
        mine = losses + random.normal(0, apart, num_steps) if apart else losses
        seconds = 0.02 * BACKENDS.get(variant.label, 1.0) * random.lognormal(0, 0.05, num_steps)
        recording = Recording(runs, variant.label, spec, experiment).claim().start()
        write_steps(recording, spec, mine.tolist(), seconds.tolist())
        recording.end()


def write_steps(
    recording: Recording, spec: ExperimentSpec, losses: list[float], seconds: list[float]
) -> None:
    compiles = recording.run_id.partition(".")[2] in BACKENDS
    every = max(BLOCK_STEPS, len(losses) // NUM_EVALUATIONS // BLOCK_STEPS * BLOCK_STEPS)
    if compiles:
        seconds[0] += 3.0
        recording.log.append("compile_metrics", step=0, phase="training", compile_id="0/0",
                             function="forward", total_seconds=2.5, aot_seconds=1.5,
                             inductor_seconds=1.0, graph_ops=500, guards=40)  # fmt: skip
    for first in range(0, len(losses), BLOCK_STEPS):
        block = seconds[first : first + BLOCK_STEPS]
        is_compiled = compiles and first == 0
        recording.block(block, losses[first : first + BLOCK_STEPS],
                        compiled=[0] if is_compiled else (), peak_memory_bytes=10**9)  # fmt: skip
        recording.device(wall_seconds=sum(block), cpus=2, own_cpu_seconds=sum(block),
                         busy_cpu_seconds=sum(block) * 1.02, stolen_cpu_seconds=0.0,
                         cpu_frequency_mhz=2400.0, load_average=1.0, processes=[])  # fmt: skip
        done = first + len(block)
        if done % every == 0:
            recording.evaluation(0.5 + 0.4 * done / len(losses), losses[first], num_samples=200)


def added(data_dir: DataDir) -> Iterator[str]:
    """Ids of the experiments in a folder, oldest first."""
    yield from dict.fromkeys(run.run_id.partition(".")[0] for run in data_dir.run_dirs())
