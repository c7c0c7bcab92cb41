"""How near the remaining time comes to the truth: real experiments, looked at as they went on.

    python -m benchmarks.remaining_time DATA_FOLDER

Of every experiment of the data folder that ended, the journals are cut off where they ended at each
quarter of its time, and the dashboard's estimate is made from them and from the experiments that
had ended before. Prints a row for each, and last how many estimates are within a factor of 1.5.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator

from runner.folders.data_dir import DataDir
from runner.folders.process import ProcessIdentity
from runner.folders.queue import Experiment, experiments
from runner.folders.records import Claim
from runner.folders.run_dir import RunDir
from storage import queries
from storage.estimates.remaining import remaining_seconds
from storage.index.store import Store
from views.parts.progress import compiling_seconds, known_costs

SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)
FACTOR = 1.5


def main() -> None:
    data_dir = DataDir(sys.argv[1])
    found = [one for one in experiments(data_dir) if all(run.read_exit() for run in one.runs)]
    rows = [row for number, one in enumerate(found) for row in replays(one, found[:number])]
    print(  # noqa: T201
        f"{'experiment':<12} {'earlier':>7} {'share':>6} {'truth':>8} {'estimate':>9} {'factor':>7}"
    )
    factors = []
    for name, num_earlier, share, truth, estimate in rows:
        factor = None if estimate is None else max(estimate, 0.1) / truth
        shown = "none" if estimate is None else f"{estimate:.1f} s"
        said = "" if factor is None else f"{factor:.2f}"
        print(f"{name:<12} {num_earlier:>7} {share:>6.0%} {truth:>6.1f} s {shown:>9} {said:>7}")  # noqa: T201
        if share >= SHARES[1] and factor is not None:
            factors.append(factor)
    good = sum(1 / FACTOR <= factor <= FACTOR for factor in factors)
    print(f"{good} of {len(factors)} after the first quarter are within a factor of {FACTOR}")  # noqa: T201


def replays(
    experiment: Experiment, earlier: list[Experiment]
) -> Iterator[tuple[str, int, float, float, float | None]]:
    """Name, number of earlier experiments, share of the time, what was left, and the estimate."""
    began = min(claim.time for run in experiment.runs if (claim := run.read_claim()))
    ended = max(record.time for run in experiment.runs if (record := run.read_exit()))
    for share in SHARES:
        now = began + share * (ended - began) + 0.01
        with tempfile.TemporaryDirectory() as folder:
            data_dir = DataDir(folder)
            for one in earlier:
                for run in one.runs:
                    shutil.copytree(run.path, data_dir.runs / run.run_id)
            for run in experiment.runs:
                cut_off(run, data_dir.run_dir(run.run_id), now)
            with Store.in_memory(data_dir) as store:
                costs, known = known_costs(store, experiment.experiment_id)
                runs = queries.list_runs(store, experiment.experiment_id)
                left = remaining_seconds(costs, known, now, compiling_seconds(runs, now))
        yield experiment.spec.name, len(earlier), share, ended - now, left


def cut_off(run: RunDir, copy: RunDir, now: float) -> None:
    """The run folder as it was then; this process stands for those that worked on it."""
    copy.write_spec(run.read_spec())
    ended, claim = run.read_exit(), run.read_claim()
    assert ended is not None and claim is not None
    if claim.time <= now:
        alive = ProcessIdentity.of(os.getpid())
        copy.write_claim(Claim(host=claim.host, process=alive, supervisor=alive, time=claim.time))
    if ended.time <= now:
        copy.write_exit(ended)
    lines = run.events_file.read_text().splitlines(keepends=True)
    copy.events_file.write_text("".join(line for line in lines if json.loads(line)["time"] <= now))


if __name__ == "__main__":
    main()
