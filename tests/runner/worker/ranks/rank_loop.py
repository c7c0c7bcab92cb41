"""Trainings over several ranks on the CPU: `train_together` has this module, started on each rank,
make one after the other all that it was asked for."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from breakeven.runner.folders.events import read_events
from breakeven.runner.specs.experiment import ExperimentSpec

ROOT = Path(__file__).parents[4]
ASKED = "asked.json"
DRAWING = ("own_numbers", "dropout_wrong_rate")
"""Backends that draw numbers of their own, which each rank knows."""


@dataclass(frozen=True)
class Asked:
    """One training: its name, which also names its journal, and after how many turns it stops."""

    name: str
    spec: ExperimentSpec
    label: str = "baseline"
    num_turns: int = 1000


def train_together(folder: Path, trainings: list[Asked], num_ranks: int = 2) -> None:
    """All in one group of processes; trainings of one name go on from each other."""
    folder.mkdir(parents=True, exist_ok=True)
    told = [
        {"name": one.name, "spec": one.spec.to_json(), "label": one.label, "turns": one.num_turns}
        for one in trainings
    ]
    (folder / ASKED).write_text(json.dumps(told))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr",
               "localhost", "--nproc-per-node", str(num_ranks), "-m", __name__,
               str(folder)]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600,
                          check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]


def journal_of(folder: Path, name: str) -> list[dict[str, Any]]:
    return read_events(folder / name)[0]


def main() -> None:
    from torch._dynamo.backends.registry import register_backend

    from breakeven.runner.specs.experiment import RunSpec
    from breakeven.runner.worker.device.devices import open_device
    from breakeven.runner.worker.event_log import EventLog, SilentLog
    from breakeven.runner.worker.group import DistributedGroup
    from breakeven.runner.worker.session import run_session
    from tests.faults.dropout_faults import OWN_NUMBERS
    from tests.helpers.loop import TurnsOnPaper, folder_of, torch_afresh

    for name in DRAWING:
        register_backend(OWN_NUMBERS[name], name=name)
    folder = Path(sys.argv[1])
    device = open_device("cpu")
    group = DistributedGroup(device)
    for one in json.loads((folder / ASKED).read_text()):
        spec = ExperimentSpec.from_json(one["spec"])
        (variant,) = (v for v in spec.variants if v.label == one["label"])
        journal = folder / one["name"]
        log = EventLog(journal) if group.rank == 0 else SilentLog()
        run_spec = RunSpec(experiment_id="x", experiment=spec, variant=variant)
        with torch_afresh():
            turns = TurnsOnPaper(one["turns"])
            run_session(folder_of(journal), run_spec, log, turns, device, group)
        log.close()
        group.gather(None)
    group.close()


if __name__ == "__main__":
    main()
