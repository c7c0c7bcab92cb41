"""Whether a training measured as a script comes out as the same one measured as a specification.

Run from the project's root:
`.venv/bin/python -m benchmarks.scripts.agreement [--pairs 5] [--device cpu] [--steps 200]`

A BERT of two layers learns the built-in reviews, once as a specification describes it and once as a
script of its own (written_out.py), each under baseline, control and Inductor: a pair, of which now
the one comes first and now the other. Two launches differ by more than the rounds of either tell,
so the script's speedup is judged by where a second measurement of the specification's should come
out if only chance lies between them (storage/statistics/prediction.py): as far as equal processes,
baseline and control, strayed in all of these launches, and at least as far as the rounds of both
let it. Prints, as Markdown, of each pair: how far losses are apart at most, as a share of the
first; each speedup with its 95 % interval, and whether the script's lies where it should; what a
step of the baseline takes; then over all pairs by how much the script's speedups are higher, and
what `breakeven.step` takes where nobody measures.
"""

import argparse
import math
import subprocess
import sys
import tempfile
import timeit
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import breakeven
from runner.folders.data_dir import DataDir
from runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from storage.comparison.comparison import compare
from storage.comparison.results import Comparison, Result
from storage.difference.speedups import ratio_of_speedups
from storage.index.store import Store
from storage.queries import losses
from storage.statistics.prediction import Spread
from storage.statistics.speedups import Ratio

SCRIPT = Path(__file__).with_name("written_out.py")
BACKEND = "inductor:scope=forward"
"""As a script has it compiled: the model alone, without loss and optimizer."""
SPEC = ExperimentSpec(
    name="agreement",
    backends=(BACKEND,),
    cpu_threads=1,
    profile_steps=0,
    model=ModelSpec(dropout="off"),
    data=DataSpec(num_eval_samples=16, sequence_length=32),
    training=TrainingSpec(
        optimizer="AdamW", learning_rate=1e-3, batch_size=16, epochs=2, last_batch="drop"
    ),
    evaluation=EvaluationSpec(when="never"),
)
HEAD = """\
| pair | losses apart by | speedup, specification | speedup, script | where it should come out |\
 does it | baseline's step, specification | script |
|---|---|---|---|---|---|---|---|"""
CALLS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One experiment: its comparison, and the losses of each run by its role."""

    comparison: Comparison
    losses: dict[str, list[float]]

    def result(self, role: str) -> Result:
        return next(one for one in self.comparison.results if one.role == role)

    def speedup(self, role: str) -> Ratio:
        found = self.result(role).speedup
        assert found is not None and found.low is not None and found.high is not None
        return found


Pair = tuple[Outcome, Outcome]
"""As a specification, as a script."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=200, help="of each training, an even number")
    options = parser.parse_args()
    samples = SPEC.training.batch_size * options.steps // SPEC.training.epochs
    data = replace(SPEC.data, num_train_samples=samples)
    spec = replace(SPEC, devices=(options.device,), data=data)
    pairs = [_pair(spec, script_first=bool(number % 2)) for number in range(options.pairs)]
    spread = Spread.pooled(_paces(outcome) for pair in pairs for outcome in pair)
    assert spread is not None
    rows = [_row(number + 1, pair, spread) for number, pair in enumerate(pairs)]
    deviation = math.sqrt(2 * spread.variance)
    sys.stdout.write(
        f"{HEAD}\n" + "\n".join(rows) + f"\n\nEqual processes strayed by {deviation:.1%} from each "
        f"other (standard deviation, {spread.freedom} degrees of freedom). {_over_all(pairs)}\n"
        f"`breakeven.step(loss, samples=16)` by itself: {_call_seconds() * 1e6:.3f} µs\n"
    )


def _pair(spec: ExperimentSpec, *, script_first: bool) -> Pair:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "spec.json"
        file.write_text(spec.to_json())
        commands = {
            "specification": ("compare", f"--spec={file}"),
            "script": (
                "script", str(SCRIPT), "--backends=inductor", "--cpu-threads=1",
                "--profile-steps=0", f"--device={spec.device}", "--", str(file),
            ),
        }  # fmt: skip
        order = sorted(commands, reverse=not script_first)
        found = {way: _outcome(Path(name) / way, spec, *commands[way]) for way in order}
    return found["specification"], found["script"]


def _outcome(folder: Path, spec: ExperimentSpec, *arguments: str) -> Outcome:
    command = [sys.executable, "-m", "runner", *arguments]
    place = command.index("--") if "--" in command else len(command)
    command.insert(place, f"--data-folder={folder}")
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if not any(DataDir(folder).run_dirs()):
        raise SystemExit(finished.stdout + finished.stderr)
    with Store.in_memory(DataDir(folder)) as store:
        (experiment_id,) = store.query("SELECT DISTINCT experiment_id FROM runs").iloc[:, 0]
        comparison = compare(store, experiment_id)
        table = losses(store, experiment_id)
    labels = {result.run_id: result.role for result in comparison.results}
    found = {
        labels[run]: part.sort_values("step")["loss"].tolist()
        for run, part in table.groupby("run_id")
    }
    if any(len(run) != spec.num_steps for run in found.values()) or len(found) != len(labels):
        raise SystemExit(finished.stdout + finished.stderr)
    return Outcome(comparison=comparison, losses=found)


def _paces(outcome: Outcome) -> list[float]:
    """Logarithms of what equal processes, baseline and control, took by rounds."""
    return [0.0, -math.log(outcome.speedup("control").median)]


def _row(number: int, pair: Pair, spread: Spread) -> str:
    one, other = pair
    apart = {
        role: max(abs(a - b) for a, b in zip(mine, other.losses[role], strict=True)) / mine[0]
        for role, mine in one.losses.items()
    }
    steps = [1e3 * (outcome.result("baseline").measured.step_seconds or 0.0) for outcome in pair]
    mine, theirs = (outcome.speedup("backend") for outcome in pair)
    low, high = _expected(mine, theirs, spread)
    told = [f"{x.median:.3f} ({x.low:.3f} to {x.high:.3f})" for x in (mine, theirs)]
    worst = ", ".join(f"{role} {value:.1e}" for role, value in apart.items())
    does = "yes" if low <= theirs.median <= high else "no"
    return (
        f"| {number} | {worst} | {told[0]} | {told[1]} | {low:.3f} to {high:.3f} | {does} "
        f"| {steps[0]:.2f} ms | {steps[1]:.2f} ms |"
    )


def _expected(mine: Ratio, theirs: Ratio, spread: Spread) -> tuple[float, float]:
    """In 95 % of cases: four processes stand behind the quotient of two speedups."""
    quotient, low, high = ratio_of_speedups(mine, theirs)
    assert low is not None and high is not None
    half = spread.half_width(4)
    below, above = max(half, math.log(high / quotient)), max(half, math.log(quotient / low))
    return mine.median * math.exp(-below), mine.median * math.exp(above)


def _over_all(pairs: Sequence[Pair]) -> str:
    """Whether one way is faster than the other: the mean over the pairs with its 95 % interval, by
    Student's t."""
    logs = [
        math.log(other.speedup("backend").median / one.speedup("backend").median)
        for one, other in pairs
    ]
    mean, spread = sum(logs) / len(logs), Spread.pooled([logs])
    said = f"The script's speedup is {math.exp(mean):.3f} times the specification's"
    if spread is None:
        return f"{said}."
    half = spread.half_width(1 / len(logs))
    return f"{said} ({math.exp(mean - half):.3f} to {math.exp(mean + half):.3f} over {len(logs)})."


def _call_seconds() -> float:
    """The least of some tries: what a call takes when nothing disturbs it."""
    loss = torch.zeros(())
    tries = timeit.repeat(lambda: breakeven.step(loss, samples=16), repeat=7, number=CALLS)
    empty = timeit.repeat(lambda: None, repeat=7, number=CALLS)
    return (min(tries) - min(empty)) / CALLS


if __name__ == "__main__":
    main()
