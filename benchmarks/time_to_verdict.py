"""How much sooner a comparison is over when its runs compile together.

Run from the project's root: `python -m benchmarks.time_to_verdict [--pairs 3]`. Needs only what
runs need.

Runs the same experiment with `compile: alone` and `compile: together`, one after the other, in an
order that alternates from pair to pair. Prints Markdown: seconds from the first claim to the last
exit record, seconds of the first round (from its first turn to its end; all runs compile in it),
their ratios, and the compile time of each backend.
"""

import argparse
import statistics
import tempfile
from dataclasses import replace
from typing import Literal

from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.folders.events import read_events
from breakeven.runner.folders.queue import find_experiment, submit
from breakeven.runner.folders.states import RunState
from breakeven.runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from breakeven.runner.supervision import supervisor

BACKENDS = ("aot_eager", "inductor", "inductor:scope=forward", "inductor:dynamic=true")
How = Literal["alone", "together"]


def measure(data_dir: DataDir, spec: ExperimentSpec) -> dict[str, float]:
    """Seconds of the whole experiment, of the first round, and of each run's first block."""
    experiment_id = submit(data_dir, spec)
    supervisor.supervise(data_dir)
    claims, ends, found = [], [], {}
    began, ended = [], []
    for run in find_experiment(data_dir, experiment_id).runs:
        claim, end = run.read_claim(), run.read_exit()
        if claim is None or end is None or end.state is not RunState.FINISHED:
            raise SystemExit(f"{run.run_id} did not finish: {run.log_tail()}")
        claims.append(claim.time)
        ends.append(end.time)
        events, _ = read_events(run.events_file)
        began.append(min(e["time"] for e in events
                         if e["kind"] == "phase" and e["phase"] == "training"))  # fmt: skip
        first = next(e for e in events if e["kind"] == "block")
        ended.append(first["time"])
        found[f"first block of {run.run_id.partition('.')[2]}"] = float(first["seconds"])
    whole = {"whole": max(ends) - min(claims), "first round": max(ended) - min(began)}
    return whole | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="builtin:bert-tiny")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    supervisor.LINGER_SECONDS = 0.0
    data_dir = DataDir(tempfile.mkdtemp(prefix="breakeven-verdict-"))
    spec = ExperimentSpec(
        name="time to verdict",
        model=ModelSpec(source=options.model),
        data=DataSpec(num_train_samples=8 * options.steps, num_eval_samples=8, sequence_length=64),
        training=TrainingSpec(batch_size=8),
        evaluation=EvaluationSpec(when="never"),
        backends=tuple(options.backends.split(",")),
        devices=(options.device,),
        profile_steps=0,
    )
    ways: tuple[How, How] = ("alone", "together")
    times: dict[How, list[dict[str, float]]] = {"alone": [], "together": []}
    for pair in range(options.pairs):
        for way in ways if pair % 2 == 0 else ways[::-1]:
            times[way].append(measure(data_dir, replace(spec, compile=way)))
            print(pair, way, times[way][-1], flush=True)  # noqa: T201
    print("\n| seconds, median | alone | together | ratio, pair by pair |\n|---|---|---|---|")  # noqa: T201
    for name in times["alone"][0]:
        one, other = ([found[name] for found in times[way]] for way in ways)
        ratios = sorted(b / a for a, b in zip(one, other, strict=True))
        print(f"| {name} | {statistics.median(one):.1f} | {statistics.median(other):.1f} | "  # noqa: T201
              f"{', '.join(f'{ratio:.2f}' for ratio in ratios)} |")  # fmt: skip


if __name__ == "__main__":
    main()
