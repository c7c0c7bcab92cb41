"""A library with more experiments than a screen shows. Most were stopped before their first step,
and share their files on the disk. Among them are those that the tests search: one by its tag, two
of different machines, two nights with a step between them."""

import os
from collections.abc import Iterator

from breakeven.runner.experiments.labels import change_labels
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from tests.helpers.journals import Recording, experiment_spec, record_experiment
from tests.helpers.nights import record_night

NUM_EXPERIMENTS = 60
NUM_ALIKE = 4
TARGET = "20261121-000003-000000-0003"
"""The searched experiment among many equal ones: its tag is `needle`."""
PAIR = ("20261120-090000-000000-0001", "20261120-090000-000000-0002")
"""The same training on a CPU and on an H100, with another version of torch."""
H100 = {
    "host": "cluster",
    "device_name": "NVIDIA H100",
    "versions": {"torch": "2.14.0", "transformers": "5.23.0"},
}


def make_many(folder: DataDir) -> None:
    alike = list(_ids("20261121-00{:04d}-000000-{:04d}", NUM_ALIKE))
    record_experiment(folder.runs, experiment_spec(num_steps=80, name="One of many"), alike[0])
    _copy(folder, alike[0], alike[1:])
    spec = experiment_spec(num_steps=80, name="Held apart")
    record_experiment(folder.runs, spec, PAIR[0])
    record_experiment(folder.runs, spec, PAIR[1], backend_seconds=0.05, environment=H100)
    nights = {"2.12.0": 0.1, "2.13.0": 0.125}
    for day, (torch, seconds) in enumerate(nights.items(), start=1):
        record_night(folder, day, seconds, versions={"torch": torch})
    others = NUM_EXPERIMENTS - NUM_ALIKE - len(PAIR) - len(nights)
    ids = list(_ids("20260301-{:06d}-000000-{:04d}", others))
    bare = experiment_spec(num_steps=10, name="One more", controls=0, backends=())
    Recording(folder.runs, "baseline", bare, ids[0]).claim().end(RunState.CANCELLED, "stopped")
    _copy(folder, ids[0], ids[1:])
    change_labels(folder, TARGET, lambda old: old.tagged(["needle"]))


def _ids(pattern: str, count: int) -> Iterator[str]:
    """Ids whose times of day count seconds, so that each is a real time."""
    for number in range(count):
        minutes, seconds = divmod(number, 60)
        hours, minutes = divmod(minutes, 60)
        yield pattern.format(hours * 10_000 + minutes * 100 + seconds, number)


def _copy(folder: DataDir, original: str, ids: list[str]) -> None:
    runs = [run for run in folder.run_dirs() if run.run_id.startswith(original)]
    for run in runs:
        spec = (run.path / "spec.json").read_text()
        for other in ids:
            copy = folder.runs / run.run_id.replace(original, other)
            copy.mkdir()
            (copy / "spec.json").write_text(spec.replace(original, other))
            for file in run.path.iterdir():
                if file.is_file() and file.name != "spec.json":
                    os.link(file, copy / file.name)
