"""How long the server takes for each page, with few and with many runs in the data folder.

    python -m benchmarks.pages_at_size FOLDER [--runs 102 1002] [--steps 10000]

Makes the data folders in FOLDER (kept for the next time): an experiment of six runs, recorded as a
worker would, and copies with ids and losses of their own. Prints Markdown: milliseconds of the
first visit of an experiment (median of five) and of later visits (95th percentile), and the memory
of the process that drew all pages. Removes all stored results before, so a first visit also
compares the experiment, unless it was compared in advance, as an idle server does. Compare ratios
within one table: times depend on the machine.
"""

import argparse
import os
import re
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from benchmarks.tables import markdown
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.journals import Recording, experiment_spec

BACKENDS = {"inductor": 0.6, "aot_eager": 1.02, "eager": 1.0, "cudagraphs": 0.8}
"""Step time under each backend, relative to the baseline's."""
NUM_RUNS = 2 + len(BACKENDS)
"""Runs of an experiment: baseline, control and backends."""
BLOCK_STEPS = 10
NUM_EVALUATIONS = 10
LOSS = re.compile(rb'"loss":([0-9.]+)')
AHEAD = "experiment compared in advance"
PAGES = ("experiment", AHEAD, "experiments", "launch", "machine")
VISITED = 6
"""Experiments whose pages are opened; the first visit loads modules and is not timed."""
LATER_VISITS = 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, nargs="*", default=[102, 1002])
    parser.add_argument("--steps", type=int, default=10_000)
    options = parser.parse_args()
    costs_by_size = {runs: of_size(options.folder, runs, options.steps) for runs in options.runs}
    rows = [
        {
            "": name,
            **{f"{runs:,} runs": f"{costs[name]:.0f}" for runs, costs in costs_by_size.items()},
        }
        for name in next(iter(costs_by_size.values()))
    ]
    print(markdown(rows))  # noqa: T201


def of_size(parent: Path, runs: int, steps: int) -> dict[str, float]:
    """Makes the data folder if it is missing, and measures in a process that has loaded nothing."""
    data_dir = DataDir(parent / f"{runs}-runs-of-{steps}-steps")
    before = len(list(added(data_dir)))
    make_store(data_dir, runs // NUM_RUNS - before, steps, before)
    with get_context("spawn").Pool(1) as process:
        return process.apply(measured, [data_dir])


def measured(data_dir: DataDir) -> dict[str, float]:
    """Milliseconds by page, and megabytes."""
    from breakeven.storage.comparison.comparison import compare
    from breakeven.storage.compiling.ladder import find_ladder
    from breakeven.storage.index.store import Store
    from breakeven.views.upkeep.startup import import_pages
    from tests.helpers.pages import opened

    import_pages()
    ids = list(added(data_dir))
    shown = {"experiment": ids[-VISITED:], AHEAD: ids[:VISITED]}
    os.environ["BREAKEVEN_DATA"] = str(data_dir.path)
    with Store.open(data_dir) as store:
        store.ingest_all()
        store.write("DELETE FROM results")
        for experiment_id in shown[AHEAD]:
            compare(store, experiment_id)
            find_ladder(store, experiment_id)
    costs: dict[str, float] = {}
    for page in PAGES:
        visited: list[dict[str, str]] = [
            {"experiment": experiment_id} for experiment_id in shown.get(page, ())
        ]
        visited = visited or [{}] * 3
        name = page.partition(" ")[0]
        opened(name, **visited[0])
        first, again = [], []
        for query in visited[1:]:
            begun = time.perf_counter()
            app = opened(name, **query)
            first.append(1e3 * (time.perf_counter() - begun))
            again += [milliseconds(app.run) for _ in range(LATER_VISITS)]
        costs[f"{page}, first visit"] = statistics.median(first)
        costs[f"{page}, again"] = sorted(again)[int(0.95 * len(again))]
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return costs | {"memory of the process, MB": resident / 1e6}


def milliseconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return 1e3 * (time.perf_counter() - begun)


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
    return LOSS.sub(lambda match: b'"loss":%.9f' % (float(match[1]) * factor), journal)


def record(runs: Path, num_steps: int, experiment: str) -> None:
    """A finished experiment of six runs, which all learn the same."""
    spec = experiment_spec(num_steps, BLOCK_STEPS, backends=tuple(BACKENDS))
    random = np.random.default_rng(0)
    losses = 2 * np.exp(-np.arange(num_steps) / num_steps) + random.normal(0, 0.05, num_steps)
    for arm in spec.arms:
        apart = 0.0 if arm.role == "baseline" else 1e-6
        own_losses = losses + random.normal(0, apart, num_steps) if apart else losses
        seconds = 0.02 * BACKENDS.get(arm.label, 1.0) * random.lognormal(0, 0.05, num_steps)
        recording = Recording(runs, arm.label, spec, experiment).claim().start()
        write_steps(recording, spec, own_losses.tolist(), seconds.tolist())
        recording.end()


def write_steps(
    recording: Recording, spec: ExperimentSpec, losses: list[float], seconds: list[float]
) -> None:
    compiles = recording.run_id.partition(".")[2] in BACKENDS
    every = max(BLOCK_STEPS, len(losses) // NUM_EVALUATIONS // BLOCK_STEPS * BLOCK_STEPS)
    if compiles:
        seconds[0] += 3.0
        recording.log.append(
            "compile_metrics",
            step=0,
            phase="training",
            compile_id="0/0",
            function="forward",
            total_seconds=2.5,
            aot_seconds=1.5,
            inductor_seconds=1.0,
            graph_ops=500,
            guards=40,
        )
    for first in range(0, len(losses), BLOCK_STEPS):
        block = seconds[first : first + BLOCK_STEPS]
        is_compiled = compiles and first == 0
        recording.block(
            block,
            losses[first : first + BLOCK_STEPS],
            compiled=[0] if is_compiled else (),
            peak_memory_bytes=10**9,
        )
        recording.device(
            wall_seconds=sum(block),
            cpus=2,
            own_cpu_seconds=sum(block),
            busy_cpu_seconds=sum(block) * 1.02,
            stolen_cpu_seconds=0.0,
            cpu_frequency_mhz=2400.0,
            load_average=1.0,
            processes=[],
        )
        done = first + len(block)
        if done % every == 0:
            recording.evaluation(0.5 + 0.4 * done / len(losses), losses[first], num_samples=200)


def added(data_dir: DataDir) -> Iterator[str]:
    """Ids of the experiments in a folder, oldest first."""
    yield from dict.fromkeys(run.run_id.partition(".")[0] for run in data_dir.run_dirs())


if __name__ == "__main__":
    main()
