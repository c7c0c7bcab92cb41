"""How many times as many experiments an hour N devices finish as one does.

Run from the project's root: `python -m benchmarks.device_throughput --devices cuda:0,cuda:1`, or on
CPUs `--devices cpu,cpu --cpus 0,1`. Needs nothing but what runs need.

Each device is given the same few experiments; one supervisor works them off, once on the first
device alone and once on all, in an order that alternates. Prints Markdown: seconds from the first
claim to the last record of an end, experiments an hour, and per pair how many times as many all
devices finish.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.folders.data_dir import DataDir
from runner.folders.queue import find_experiment, submit
from runner.folders.states import RunState
from runner.specs.experiment import DataSpec, EvaluationSpec, ExperimentSpec, ModelSpec
from runner.specs.training import Precision, TrainingSpec
from runner.supervision import supervisor


def measure(data_dir: DataDir, specs: Sequence[ExperimentSpec]) -> float:
    """Seconds from the first claim to the last end."""
    submitted = [submit(data_dir, spec) for spec in specs]
    supervisor.supervise(data_dir)
    claims, ends = [], []
    for experiment_id in submitted:
        for run in find_experiment(data_dir, experiment_id).runs:
            claim, end = run.read_claim(), run.read_exit()
            if claim is None or end is None or end.state is not RunState.FINISHED:
                raise SystemExit(f"{run.run_id} did not finish: {run.log_tail()}")
            claims.append(claim.time)
            ends.append(end.time)
    return max(ends) - min(claims)


def experiment(model: str, steps: int, batch: int, precision: Precision) -> ExperimentSpec:
    return ExperimentSpec(
        name="throughput",
        model=ModelSpec(source=model),
        data=DataSpec(num_train_samples=batch * steps, num_eval_samples=8, sequence_length=128),
        training=TrainingSpec(batch_size=batch, precision=precision),
        evaluation=EvaluationSpec(when="never"),
        backends=("eager",),
        profile_steps=0,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", default="cuda:0,cuda:1")
    parser.add_argument("--cpus", help="of each device, such as 0,1; default: those near it")
    parser.add_argument("--each", type=int, default=2, help="experiments of each device")
    parser.add_argument("--pairs", type=int, default=1)
    parser.add_argument("--model", default="builtin:bert-base")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--precision", choices=("float32", "bf16"), default="bf16")
    options = parser.parse_args()
    supervisor.LINGER_SECONDS = 0.0
    devices = options.devices.split(",")
    cpus = options.cpus.split(",") if options.cpus else [None] * len(devices)
    spec = experiment(options.model, options.steps, options.batch, options.precision)
    placed = [
        replace(spec, devices=(device,), cpus=own)
        for _ in range(options.each)
        for device, own in zip(devices, cpus, strict=True)
    ]
    ways = {1: placed[:: len(devices)], len(devices): placed}
    rates: dict[int, list[float]] = {count: [] for count in ways}
    print("| devices | experiments | seconds | experiments an hour |\n|---|---|---|---|")  # noqa: T201
    for pair in range(options.pairs):
        for count in sorted(ways, reverse=pair % 2 == 1):
            folder = Path(tempfile.mkdtemp(prefix="breakeven-throughput-"))
            seconds = measure(DataDir(folder), ways[count])
            rates[count].append(3600 * len(ways[count]) / seconds)
            print(f"| {count} | {len(ways[count])} | {seconds:.1f} | {rates[count][-1]:.0f} |",  # noqa: T201
                  flush=True)  # fmt: skip
    gains = [many / one for one, many in zip(rates[1], rates[len(devices)], strict=True)]
    print(f"\n{len(devices)} devices: {', '.join(f'{gain:.2f}' for gain in gains)} times as many")  # noqa: T201


if __name__ == "__main__":
    main()
