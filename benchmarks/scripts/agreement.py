"""Whether a training measured as a script comes out as the same one measured as a specification.

Run from the project's root: `.venv/bin/python -m benchmarks.scripts.agreement [REPEATS [DEVICE]]`

A BERT of two layers learns the built-in reviews, once as a specification describes it and once as a
script of its own (written_out.py), each under baseline, control and Inductor, in turn and REPEATS
(3) times. Prints, as Markdown: how far losses are apart at most, as a share of the first; each
speedup with its 95 % interval, and whether either lies in the other's; what a step of the baseline
takes; and what `breakeven.step` takes where nobody measures.
"""

import subprocess
import sys
import tempfile
import timeit
from dataclasses import dataclass, replace
from pathlib import Path

import torch

import breakeven
from runner.folders.run_dir import DataDir
from runner.specs.experiment import (
    DataSpec,
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from storage.comparison.comparison import compare
from storage.comparison.results import Comparison, Result
from storage.index.store import Store
from storage.queries import losses
from storage.statistics.speedups import Ratio

SCRIPT = Path(__file__).with_name("written_out.py")
BACKEND = "inductor:scope=forward"
"""As a script has it compiled: the model alone, without loss and optimizer."""
STEPS = 200
SPEC = ExperimentSpec(
    name="agreement",
    backends=(BACKEND,),
    cpu_threads=1,
    profile_steps=0,
    model=ModelSpec(dropout="off"),
    data=DataSpec(num_train_samples=16 * STEPS // 2, num_eval_samples=16, sequence_length=32),
    training=TrainingSpec(
        optimizer="AdamW", learning_rate=1e-3, batch_size=16, epochs=2, last_batch="drop"
    ),
    evaluation=EvaluationSpec(when="never"),
)
CALLS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One experiment: its comparison, and the losses of each run by its role."""

    comparison: Comparison
    losses: dict[str, list[float]]

    def result(self, role: str) -> Result:
        return next(one for one in self.comparison.results if one.role == role)


def main() -> None:
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    device = sys.argv[2] if len(sys.argv) > 2 else "cpu"
    spec = replace(SPEC, devices=(device,))
    rows = []
    for number in range(repeats):
        with tempfile.TemporaryDirectory() as name:
            file = Path(name) / "spec.json"
            file.write_text(spec.to_json())
            one = _outcome(Path(name) / "specification", "compare", f"--spec={file}")
            other = _outcome(
                Path(name) / "script", "script", str(SCRIPT), "--backends=inductor",
                "--cpu-threads=1", "--profile-steps=0", f"--device={device}", "--", str(file),
            )  # fmt: skip
        rows.append(_row(number + 1, one, other))
    sys.stdout.write(
        "| repeat | losses apart by | speedup, specification | speedup, script | in each other's "
        "interval | baseline's step, specification | script |\n"
        "|---|---|---|---|---|---|---|\n" + "\n".join(rows) + "\n\n"
        f"`breakeven.step(loss, samples=16)` by itself: {_call_seconds() * 1e6:.3f} µs\n"
    )


def _outcome(folder: Path, *arguments: str) -> Outcome:
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
    if any(len(run) != STEPS for run in found.values()) or len(found) != len(labels):
        raise SystemExit(finished.stdout + finished.stderr)
    return Outcome(comparison=comparison, losses=found)


def _row(number: int, one: Outcome, other: Outcome) -> str:
    apart = {
        role: max(abs(a - b) for a, b in zip(mine, other.losses[role], strict=True)) / mine[0]
        for role, mine in one.losses.items()
    }
    speedups = [outcome.result("backend").speedup for outcome in (one, other)]
    steps = [
        1e3 * (outcome.result("baseline").measured.step_seconds or 0.0) for outcome in (one, other)
    ]
    mine, theirs = speedups
    assert mine is not None and theirs is not None
    told = [f"{x.median:.3f} ({x.low:.3f} to {x.high:.3f})" for x in (mine, theirs)]
    is_inside = _is_in(theirs, mine.median) and _is_in(mine, theirs.median)
    worst = ", ".join(f"{role} {value:.1e}" for role, value in apart.items())
    return (
        f"| {number} | {worst} | {told[0]} | {told[1]} | {'yes' if is_inside else 'no'} "
        f"| {steps[0]:.2f} ms | {steps[1]:.2f} ms |"
    )


def _is_in(ratio: Ratio, median: float) -> bool:
    assert ratio.low is not None and ratio.high is not None
    return ratio.low <= median <= ratio.high


def _call_seconds() -> float:
    """The least of some tries: what a call takes when nothing disturbs it."""
    loss = torch.zeros(())
    tries = timeit.repeat(lambda: breakeven.step(loss, samples=16), repeat=7, number=CALLS)
    empty = timeit.repeat(lambda: None, repeat=7, number=CALLS)
    return (min(tries) - min(empty)) / CALLS


if __name__ == "__main__":
    main()
