"""An experiment at its place: all runs by turns, or, where they are spread over devices, those of
each device by turns of their own, side by side."""

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.queue import Experiment
from breakeven.runner.machine.placement import Machine, Place, split
from breakeven.runner.machine.topology import cores
from breakeven.runner.supervision.exit_records import ExitRecords
from breakeven.runner.supervision.placing import keep_to
from breakeven.runner.supervision.scheduler import TICK_SECONDS, Fallback, Scheduler


def work_at(
    data_dir: DataDir,
    experiment: Experiment,
    command: Sequence[str],
    exits: ExitRecords,
    place: Place,
    machine: Machine,
    sign: Callable[[], None] = lambda: None,
    takes_controls: bool = True,
) -> None:
    """Runs an experiment to its end. The calling thread, and what it starts, keep to the CPUs of
    the place from then on. `sign` is called often while all goes on, on every device.
    `takes_controls`: whether runs may be added to it."""
    count = experiment.spec.num_places
    if count == 1:
        scheduler = Scheduler(data_dir, experiment, command, exits, place, sign,
                              takes_controls=takes_controls)  # fmt: skip
        _work(scheduler, place, machine)
        return
    fallback, signed, threads = Fallback(), set[int](), {}
    for number, part in enumerate(split(place, machine, cores(place.cpus), count), start=1):
        note = partial(signed.add, number)
        scheduler = Scheduler(data_dir, experiment, command, exits, part, note, number, fallback)
        threads[number] = threading.Thread(
            target=_work,
            args=(scheduler, part, machine),
            name=f"{experiment.experiment_id} at {number}",
            daemon=True,
        )
    for thread in threads.values():
        thread.start()
    while alive := {number for number, thread in threads.items() if thread.is_alive()}:
        if alive <= signed:  # One that hangs must not pass for well because another goes on.
            signed.clear()
            sign()
        time.sleep(TICK_SECONDS)


def _work(scheduler: Scheduler, place: Place, machine: Machine) -> None:
    """Before all else: the scheduler's processes have the CPUs that the thread has."""
    refused = keep_to(place, machine)
    if refused is None:
        scheduler.run()
    else:
        scheduler.give_up(refused)
