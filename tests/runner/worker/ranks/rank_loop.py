"""Trainings over several ranks on the CPU, one after the other in the same processes."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.runner.protocol.events import read_events
from breakeven.runner.specs.experiment import ExperimentSpec
from tests.helpers.waiting import wait_until
from tests.runner.worker.forked import start

DRAWING = ("own_numbers", "dropout_wrong_rate")
"""Backends that draw numbers of their own, which each rank knows."""


@dataclass(frozen=True)
class Training:
    """One training: its name, which also names its journal, after how many turns it stops, and the
    name of a copy of what it leaves."""

    name: str
    spec: ExperimentSpec
    label: str = "baseline"
    num_turns: int = 1000
    copy: str = ""


def train_together(folder: Path, trainings: list[Training], num_ranks: int = 2) -> None:
    """All in one group of processes; trainings of one name go on from each other."""
    folder.mkdir(parents=True, exist_ok=True)
    outputs = [folder / f"rank-{rank}" for rank in range(num_ranks)]
    ranks = [
        start(output, train_all, folder, trainings, RANK=str(rank), WORLD_SIZE=str(num_ranks))
        for rank, output in enumerate(outputs)
    ]
    wait_until(
        lambda: (
            all(rank.exitcode is not None for rank in ranks) or any(rank.exitcode for rank in ranks)
        )
    )
    for rank, output in zip(ranks, outputs, strict=True):
        assert rank.exitcode == 0, output.read_text()[-6000:]


def journal_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_events(folder / name)[0]


def train_all(folder: Path, trainings: list[Training]) -> None:
    """What each rank does."""
    from torch._dynamo.backends.registry import register_backend

    from breakeven.runner.specs.experiment import RunSpec
    from breakeven.runner.worker.context import DistributedGroup
    from breakeven.runner.worker.device.device_kinds import open_device
    from breakeven.runner.worker.event_log import EventLog, SilentLog
    from breakeven.runner.worker.session import run_session
    from tests.faults.dropout_faults import OWN_NUMBERS
    from tests.helpers.loop import TurnsOnPaper, folder_of, torch_afresh

    for name in DRAWING:
        register_backend(OWN_NUMBERS[name], name=name)
    device = open_device("cpu")
    group = DistributedGroup(device, str(folder / "meeting"))
    for training in trainings:
        spec = training.spec
        (arm,) = (v for v in spec.arms if v.label == training.label)
        journal = folder / training.name
        log = EventLog(journal) if group.rank == 0 else SilentLog()
        run_spec = RunSpec(experiment_id="x", experiment=spec, arm=arm)
        with torch_afresh():
            turns = TurnsOnPaper(training.num_turns)
            run_session(folder_of(journal), run_spec, log, turns, device, group)
        log.close()
        if training.copy and group.rank == 0:
            shutil.copy(journal, folder / training.copy)
            shutil.copytree(folder_of(journal).path, folder_of(folder / training.copy).path)
        group.gather(None)
    group.close()
