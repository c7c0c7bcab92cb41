"""Experiments of every scenario whose numbers are all different, and always the same."""

import math
from collections.abc import Callable
from random import Random

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import CacheSpec
from tests.helpers.correctness_journals import SPEC as ACCURACY
from tests.helpers.correctness_journals import record as record_accuracy
from tests.helpers.correctness_journals import tensor
from tests.helpers.journals import Recording, experiment_spec
from tests.helpers.speed_journals import speed_spec

BACKENDS = {"inductor": 0.6, "aot_eager": 1.01, "eager": 1.0, "cudagraphs": 1.3}
NUM_STEPS = 300


def training(data_dir: DataDir) -> None:
    """Six runs: one is resumed, one diverges, one learns something else, one infers wrongly."""
    random = Random(1)
    spec = experiment_spec(NUM_STEPS, backends=tuple(BACKENDS))
    common = [2 * math.exp(-step / 150) + random.gauss(0, 0.05) for step in range(NUM_STEPS)]
    for arm in spec.arms:
        own_losses = _apart(common, arm.label, random)
        run = Recording(data_dir.runs, arm.label, spec).claim().start(padding_share=0.25)
        compiles = arm.role == "backend"
        if compiles:
            run.log.append(
                "compile_metrics",
                step=0,
                phase="training",
                compile_id="0/0",
                function="f",
                total_seconds=2.5,
                guards=random.randrange(9),
            )
            run.log.append("graph_break", step=0, phase="training", reason="print", count=2)
        _blocks(run, own_losses, BACKENDS.get(arm.label, 1.0), compiles, random)
        run.end()


def _apart(common: list[float], label: str, random: Random) -> list[float]:
    if label == "baseline":
        return common
    size = 3e-3 if label == "eager" else 1e-6
    losses = [loss + random.gauss(0, size * (1 + step / 9)) for step, loss in enumerate(common)]
    return [*losses[:-5], *[math.nan] * 5] if label == "cudagraphs" else losses


def _blocks(
    run: Recording, losses: list[float], factor: float, compiles: bool, random: Random
) -> None:
    drift = 0.0
    while run.num_steps < NUM_STEPS:
        first, drift = run.num_steps, 0.7 * drift + random.gauss(0, 0.03)
        seconds = [0.2 * factor * math.exp(drift + random.gauss(0, 0.05)) for _ in range(10)]
        is_compiled = compiles and first == 0
        seconds[0] += 3.0 * is_compiled
        run.block(
            seconds,
            losses[first : first + 10],
            compiled=[0] if is_compiled else (),
            peak_memory_bytes=random.randrange(10**9),
            reserved_memory_bytes=10**9,
        )
        run.device(
            wall_seconds=sum(seconds),
            cpus=2,
            own_cpu_seconds=1.5 * sum(seconds),
            busy_cpu_seconds=(1.55 + 0.3 * random.random()) * sum(seconds),
            stolen_cpu_seconds=0.001,
            cpu_frequency_mhz=2000.0 + random.gauss(0, 200),
            temperature_celsius=50 + first / 20,
        )
        if run.num_steps % 100 == 0:
            accuracy, loss = 0.3 + run.num_steps / 500 + random.gauss(0, 0.01), losses[first]
            metrics = {"accuracy": accuracy, "f1": 0.5}
            for split in ("validation", "train"):
                run.evaluation(accuracy, loss, split=split, metrics=metrics)
            if compiles:
                wrong = 0.1 if run.run_id.endswith("aot_eager") else 1e-5
                run.evaluation(
                    accuracy,
                    loss * (1 + wrong),
                    split="validation",
                    compiled=True,
                    metrics={"accuracy": accuracy},
                )
        if run.run_id.endswith("control") and first == 150 and run._num_blocks < 20:
            run.checkpoint().resume(120)


def speed(data_dir: DataDir) -> None:
    """Three repeats, which differ from each other."""
    random = Random(2)
    spec = speed_spec(repeats=3)
    for arm in spec.arms:
        usual = 0.2 * (0.8 if arm.role == "backend" else 1.0) * math.exp(random.gauss(0, 0.02))
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        run.block([2 * usual] * 2, [2.0, 1.9], warm_up=True)
        for number in range(13):
            seconds = [usual * math.exp(random.gauss(0, 0.03)) for _ in range(2)]
            run.block(seconds, [1.8 - number / 20, 1.75 - number / 20])
        run.stop("the rounds that were asked for are over").end()


def cache(data_dir: DataDir) -> None:
    """Pairs of cold and warm processes."""
    random = Random(3)
    spec = experiment_spec(num_steps=20, scenario="cache", cache=CacheSpec(repeats=6))
    for arm in spec.arms:
        cold = 0.0 if arm.role == "baseline" else 1.0 if "warm" in arm.label else 5.0
        run = Recording(data_dir.runs, arm.label, spec).claim().start()
        for number in range(2):
            seconds = [0.5 * math.exp(random.gauss(0, 0.05)) for _ in range(10)]
            seconds[0] += cold * (number == 0) * math.exp(random.gauss(0, 0.1))
            run.block(seconds, [1.0] * 10, compiled=[0] if cold and number == 0 else ())
        run.end()


def accuracy(data_dir: DataDir) -> None:
    """One backend passes, one differs."""
    good, bad = tensor("a"), tensor("b", passed=False, rmse=0.02)
    for arm in ACCURACY.arms:
        differs = arm.label == "inductor"
        checked = ("fail_accuracy", [good, bad]) if differs else ("pass", [good])
        record_accuracy(data_dir, arm.label, {"training": checked, "inference": ("pass", [good])})


VARIED: dict[str, Callable[[DataDir], None]] = {
    "varied-training": training,
    "varied-speed": speed,
    "varied-cache": cache,
    "varied-accuracy": accuracy,
}
