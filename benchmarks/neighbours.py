"""How much an experiment is disturbed by one that is at work beside it, on other devices and CPUs.

Run from the project's root: `python -m benchmarks.neighbours --devices cuda:0,cuda:1`, or on CPUs
`--devices cpu,cpu --cpus 0,1`. Nothing is needed but what runs need.

A baseline and a control train on the first device, turn by turn, while a neighbour is at work on
the second, under the same supervisor. The neighbour is stopped (SIGSTOP) and goes on again every
few seconds, so that quiet and busy times of one and the same process are compared, and drift hits
both. What it does: nothing (which shows how well this method tells no difference), training,
compiling, over and over with empty caches. Training is looked at once more with all processes let
loose on all CPUs. Prints Markdown: how much longer a step takes beside the neighbour, with a 95 %
interval by resampling pairs of windows; and what the control is against the baseline, which is what
a comparison leans on, in quiet and in busy times.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from runner.folders.data_dir import DataDir
from runner.folders.events import read_events
from runner.folders.process import signal_group
from runner.folders.queue import cancel, ensure_supervisor, find_experiment, submit
from runner.folders.run_dir import RunDir
from runner.folders.states import RunState
from runner.machine.capabilities import probe
from runner.machine.cpus import cpu_allowance
from runner.specs.cpu_lists import parse_cpus, write_cpus
from runner.specs.experiment import (
    CacheSpec,
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)

EDGE_SECONDS = 0.25
"""Cut off at the beginning of a window: a device finishes what it was given."""
LOOK_SECONDS = 0.02
PATIENCE_SECONDS = 120.0
RESAMPLES = 2000
MEASURED = ("baseline", "control")


@dataclass(frozen=True, kw_only=True)
class Window:
    """A time in which the neighbour was at work, or was not."""

    busy: bool
    began: float
    ended: float


@dataclass(frozen=True, kw_only=True)
class Block:
    label: str
    began: float
    ended: float
    step_seconds: float


def training(options: argparse.Namespace, place: int, name: str) -> ExperimentSpec:
    """An endless training on one of the two devices."""
    device, cpus = options.devices[place], options.cpus[place]
    return ExperimentSpec(
        name=name,
        model=ModelSpec(source=options.model),
        data=DataSpec(num_train_samples=64 * options.batch, num_eval_samples=8,
                      sequence_length=options.tokens),
        training=TrainingSpec(batch_size=options.batch, epochs=15_000, learning_rate=1e-5),
        evaluation=EvaluationSpec(when="never"),
        backends=(),
        devices=(device,),
        cpus=cpus,
        profile_steps=0,
        block_steps=options.block_steps,
        time_limit_seconds=86_400.0,
    )  # fmt: skip


def compiling(options: argparse.Namespace) -> ExperimentSpec:
    """Inductor with empty caches, again and again."""
    return replace(
        training(options, 1, "compiling"), scenario="cache", backends=("inductor",),
        cache=CacheSpec(steps=options.block_steps + 1, repeats=5),
    )  # fmt: skip


class Neighbourhood:
    """The two experiments, and what is known of their processes."""

    def __init__(self, data_dir: DataDir, measured: str) -> None:
        self.data_dir = data_dir
        self.measured = measured
        self.neighbour: str | None = None

    def runs(self, experiment_id: str | None) -> list[RunDir]:
        if experiment_id is None:
            return []
        return list(find_experiment(self.data_dir, experiment_id).runs)

    def groups(self, experiment_id: str | None) -> list[int]:
        """Process groups of an experiment's living runs."""
        return [claim.process.pid for run in self.runs(experiment_id)
                if run.state is RunState.RUNNING and (claim := run.read_claim())]  # fmt: skip

    def begin(self, spec: ExperimentSpec) -> None:
        """Puts the neighbour to work and waits until it is."""
        self.neighbour = submit(self.data_dir, spec)
        compiles = spec.kind.compares_caches
        self.wait(lambda: any(
            (one["kind"] == "compile_started") if compiles else (one["kind"] == "block")
            for run in self.runs(self.neighbour) for one in read_events(run.events_file)[0]
        ))  # fmt: skip

    def end(self, experiment_id: str | None) -> None:
        if experiment_id is None:
            return
        self.signal(experiment_id, signal.SIGCONT)
        cancel(find_experiment(self.data_dir, experiment_id))
        self.wait(lambda: all(run.state.is_final for run in self.runs(experiment_id)))

    def signal(self, experiment_id: str | None, number: signal.Signals) -> None:
        for group in self.groups(experiment_id):
            signal_group(group, number)

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            failed = [run for run in (*self.runs(self.measured), *self.runs(self.neighbour))
                      if run.state.is_failed]  # fmt: skip
            if failed:
                sys.exit(f"{failed[0].run_id}: {failed[0].log_tail()}")
            if time.monotonic() > deadline:
                sys.exit(f"waited in vain; see {self.data_dir.supervisor_log}")
            time.sleep(0.1)

    def keep_to(self, cpus: Collection[int], experiment_id: str | None) -> None:
        """Has every thread of an experiment run on these CPUs."""
        for group in self.groups(experiment_id):
            for stat in Path("/proc").glob("[0-9]*/stat"):
                try:
                    if int(stat.read_text().rpartition(")")[2].split()[2]) != group:
                        continue
                    for task in (stat.parent / "task").iterdir():
                        os.sched_setaffinity(int(task.name), cpus)
                except OSError:  # it has ended
                    continue

    def windows(self, seconds: float, length: float) -> list[Window]:
        """Quiet and busy ones in turn, the first one drawn by lot in each pair."""
        found: list[Window] = []
        draw = random.Random(0)
        for _ in range(max(4, round(seconds / (2 * length)))):
            for busy in draw.sample([False, True], 2):
                began = time.time()
                while time.time() < began + length:
                    # Each time anew: a neighbour that compiles is a new process every few seconds.
                    self.signal(self.neighbour, signal.SIGCONT if busy else signal.SIGSTOP)
                    time.sleep(LOOK_SECONDS if not busy else length / 4)
                found.append(Window(busy=busy, began=began + EDGE_SECONDS, ended=time.time()))
        self.signal(self.neighbour, signal.SIGCONT)
        return found

    def blocks(self) -> list[Block]:
        """All that the measured runs have recorded so far; a block is written when it ends."""
        return [
            Block(
                label=run.run_id.partition(".")[2],
                began=event["time"] - event["seconds"],
                ended=event["time"],
                step_seconds=event["seconds"] / event["num_steps"],
            )
            for run in self.runs(self.measured)
            for event in read_events(run.events_file)[0]
            if event["kind"] == "block"
        ]


def summary(windows: Sequence[Window], blocks: Sequence[Block]) -> dict[str, object]:
    """Ratios of medians over pairs of windows that lie side by side."""
    pairs: list[tuple[float, float, float]] = []
    for one, other in zip(windows[::2], windows[1::2], strict=True):
        quiet, busy = (one, other) if other.busy else (other, one)
        times = {(label, window.busy): _median(label, window, blocks)
                 for label in MEASURED for window in (quiet, busy)}  # fmt: skip
        if all(times.values()):
            slower = [times[label, True] / times[label, False] for label in MEASURED]
            pairs.append((
                math.sqrt(slower[0] * slower[1]),
                *(times["control", busy] / times["baseline", busy] for busy in (False, True)),
            ))  # type: ignore[arg-type] # fmt: skip
    names = ("step beside / step alone", "control / baseline, quiet", "control / baseline, busy")
    told = {name: _interval([pair[place] for pair in pairs]) for place, name in enumerate(names)}
    return {"pairs of windows": len(pairs), **told}


def _median(label: str, window: Window, blocks: Sequence[Block]) -> float:
    inside = [one.step_seconds for one in blocks if one.label == label
              and one.began >= window.began and one.ended <= window.ended]  # fmt: skip
    return statistics.median(inside) if inside else 0.0


def _interval(values: Sequence[float]) -> tuple[float, float, float] | None:
    """Median of values, and the middle 95 % of it over resamplings."""
    if not values:
        return None
    draw = random.Random(0)
    medians = sorted(
        statistics.median(draw.choices(values, k=len(values))) for _ in range(RESAMPLES)
    )
    low, high = medians[int(0.025 * RESAMPLES)], medians[int(0.975 * RESAMPLES)]
    return statistics.median(values), low, high


def measure(options: argparse.Namespace, data_dir: DataDir) -> dict[str, dict[str, object]]:
    """All neighbours, one after the other, beside the same two processes."""
    found: dict[str, dict[str, object]] = {}
    place = Neighbourhood(data_dir, submit(data_dir, training(options, 0, "measured")))

    def look(name: str) -> None:
        windows = place.windows(options.seconds, options.window)
        found[name] = summary(windows, place.blocks())
        print(f"{name}: {json.dumps(found[name])}", file=sys.stderr, flush=True)  # noqa: T201

    place.begin(training(options, 1, "neighbour"))
    place.wait(lambda: {block.label for block in place.blocks()} == set(MEASURED))
    look("training")
    places = {experiment_id: sorted({claim.cpus or "" for run in place.runs(experiment_id)
                                     if (claim := run.read_claim())})
              for experiment_id in (place.measured, place.neighbour or "")}  # fmt: skip
    if not options.pinned_only:
        every = cpu_allowance().cpus
        for experiment_id in (place.measured, place.neighbour):
            place.keep_to(every, experiment_id)
        look("training, CPUs shared")
        place.keep_to(parse_cpus(places[place.measured][0]), place.measured)
    place.end(place.neighbour)
    place.neighbour = None
    look("nothing")
    place.begin(compiling(options))
    look("compiling")
    place.end(place.neighbour)
    place.end(place.measured)
    found["CPUs"] = {"measured, neighbour": list(places.values())}
    return found


def markdown(found: dict[str, dict[str, object]]) -> str:
    rows = {name: told for name, told in found.items() if "pairs of windows" in told}
    titles = list(next(iter(rows.values())))
    lines = [f"| neighbour | {' | '.join(titles)} |", "|---" * (len(titles) + 1) + "|"]
    for name, told in rows.items():
        lines.append(f"| {name} | {' | '.join(map(_cell, told.values()))} |")
    return "\n".join(lines)


def _cell(value: object) -> str:
    if isinstance(value, tuple):
        middle, low, high = value
        return f"{middle:.4f} ({low:.4f} to {high:.4f})"
    return "—" if value is None else str(value)


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", default="cuda:0,cuda:1", help="of the measured, the neighbour")
    parser.add_argument("--cpus", help="of each, between colons: 0-7:8-15; else those near it")
    parser.add_argument("--model", default="builtin:bert-base")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--block-steps", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each neighbour")
    parser.add_argument("--window", type=float, default=2.0, help="seconds of a window")
    parser.add_argument("--pinned-only", action="store_true")
    parser.add_argument("--folder", type=Path, help="where run folders are kept")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    options.devices = options.devices.split(",")
    options.cpus = options.cpus.split(":") if options.cpus else [None, None]
    for cpus in filter(None, options.cpus):
        parse_cpus(cpus)
    return options


def main() -> None:
    options = read_options()
    data_dir = DataDir(options.folder or tempfile.mkdtemp(prefix="breakeven-neighbours-"))
    machine = probe(data_dir)
    supervisor = ensure_supervisor(data_dir)
    try:
        found = measure(options, data_dir)
    finally:
        if supervisor is not None:
            supervisor.terminate()  # which ends all that it started
    names = {one.id: one.name for one in machine.devices}
    print(f"{', '.join(names.get(one, one) for one in options.devices)}; "  # noqa: T201
          f"{options.model}, batch {options.batch}, {options.tokens} tokens; torch "
          f"{machine.torch_version}; CPUs {found['CPUs']['measured, neighbour']} of "
          f"{write_cpus(cpu_allowance().cpus)}\n\n{markdown(found)}")  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
