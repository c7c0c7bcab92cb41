"""The same work in another tool: writes the losses of some runs, or reads back those of six.

    python peers.py tensorboard|mlflow|trackio|aim write|read FOLDER RUNS STEPS

Runs with the Python of an environment that has the tool; `benchmarks.library_at_size` calls it.
Prints the seconds that reading took, and how many points came back, a line for each time; the first
time includes importing.
"""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

NUM_READ = 6
NUM_TIMES = 3
PROJECT = "breakeven"


def losses(run: int, steps: int) -> list[float]:
    chance = random.Random(run)
    return [2 - step / steps + chance.gauss(0, 0.05) for step in range(steps)]


def tensorboard(folder: Path, runs: int, steps: int, write: bool) -> int:
    if write:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        for run in range(runs):
            writer = EventFileWriter(str(folder / f"run-{run}"))
            for step, loss in enumerate(losses(run, steps)):
                value = Summary(value=[Summary.Value(tag="loss", simple_value=loss)])
                writer.add_event(Event(step=step, summary=value, wall_time=time.time()))
            writer.close()
        return 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = 0
    for run in range(NUM_READ):
        accumulator = EventAccumulator(str(folder / f"run-{run}"), {"scalars": 0})
        accumulator.Reload()
        found += len(accumulator.Scalars("loss"))
    return found


def mlflow(folder: Path, runs: int, steps: int, write: bool) -> int:
    from mlflow.entities import Metric
    from mlflow.tracking import MlflowClient

    client: Any = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    if write:
        experiment = client.create_experiment(PROJECT)
        for run in range(runs):
            run_id = client.create_run(experiment).info.run_id
            points = [Metric("loss", loss, 0, step) for step, loss in enumerate(losses(run, steps))]
            for first in range(0, steps, 1000):
                client.log_batch(run_id, metrics=points[first : first + 1000])
        return 0
    experiment = client.get_experiment_by_name(PROJECT).experiment_id
    found = client.search_runs([experiment], max_results=NUM_READ)
    return sum(len(client.get_metric_history(run.info.run_id, "loss")) for run in found)


def trackio(folder: Path, runs: int, steps: int, write: bool) -> int:
    os.environ["TRACKIO_DIR"] = str(folder)
    from trackio.sqlite_storage import SQLiteStorage

    if write:
        for run in range(runs):
            rows = [{"loss": loss} for loss in losses(run, steps)]
            SQLiteStorage.bulk_log(PROJECT, f"run-{run}", rows, steps=list(range(steps)))
        return 0
    return sum(len(SQLiteStorage.get_logs(PROJECT, f"run-{run}")) for run in range(NUM_READ))


def aim(folder: Path, runs: int, steps: int, write: bool) -> int:
    from aim import Repo, Run

    repo: Any = Repo.from_path(str(folder), init=write)
    if write:
        for run in range(runs):
            tracked: Any = Run(repo=repo, system_tracking_interval=None, experiment=PROJECT)
            tracked["number"] = run
            for step, loss in enumerate(losses(run, steps)):
                tracked.track(loss, name="loss", step=step)
            tracked.close()
        # Queries find what is indexed, which its user interface does in the background, and this.
        reindex = [str(Path(sys.executable).with_name("aim")), "storage", "--repo", str(folder)]
        subprocess.run([*reindex, "reindex", "--yes"], check=True, stdout=subprocess.DEVNULL)
        return 0
    query = f"metric.name == 'loss' and run.number < {NUM_READ}"
    found = repo.query_metrics(query, report_mode=0).iter_runs()
    return sum(len(metric.values.sparse_numpy()[0]) for of_run in found for metric in of_run)


PEERS = {"tensorboard": tensorboard, "mlflow": mlflow, "trackio": trackio, "aim": aim}


def main() -> None:
    name, action, folder, runs, steps = sys.argv[1:]
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    if action == "write":
        PEERS[name](path, int(runs), int(steps), True)
        return
    for _ in range(NUM_TIMES + 1):
        begun = time.perf_counter()
        found = PEERS[name](path, int(runs), int(steps), False)
        print(time.perf_counter() - begun, found, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
