"""How often parity is wrong about restless trainings, with the number of controls that each takes.

Run from the project's root: `python -m benchmarks.restless_trials FOLDER FIRST_SEED NUMBER
[TEXTS.csv [OPTIMIZER]]`. Each experiment trains a tiny BERT as baseline and controls, with correct
backends that round differently, and with faults from the middle on. Every backend is judged with as
many controls as `runner/more_controls.py` takes for an experiment with this backend alone.
Skips trainings that are already in FOLDER. Prints a Markdown table of all in FOLDER.
"""

import os
import sys
from collections import Counter
from pathlib import Path
from unittest import mock

from benchmarks.late_trials import Trained, trained
from benchmarks.parity_recording import DONE, quieten
from breakeven.runner.more_controls import why_another_control
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, RunSpec
from breakeven.runner.specs.training import TrainingSpec
from tests.faults import late_faults
from tests.faults.rounding_backends import ROUNDING
from tests.faults.trial import TRIAL, train, train_arms

NUM_STEPS = 200
CORRECT = ("eager", *ROUNDING)
FAULTS = ("late_zeroed_gradients", "late_shifted_labels")


def experiment(
    seed: int, texts: str = "builtin:reviews", optimizer: str = "AdamW"
) -> ExperimentSpec:
    training = TrainingSpec(
        optimizer=optimizer, learning_rate=1e-3, batch_size=16, max_steps=NUM_STEPS, seed=seed
    )
    data = DataSpec(source=texts, num_train_samples=960, num_eval_samples=200, sequence_length=16)
    return ExperimentSpec(
        name="tiny BERT",
        data=data,
        training=training,
        profile_steps=0,
        backends=(*CORRECT, *FAULTS),
    )


def record(folder: Path, spec: ExperimentSpec) -> None:
    """Trains all runs, and the additional controls that one of the backends takes."""
    if (folder / DONE).exists():
        return
    with mock.patch.dict(os.environ, {late_faults.BEGINS: str(NUM_STEPS // 2)}):
        for _ in train_arms(folder, spec):
            pass
    data_dir = DataDir(folder)
    for number, arm in enumerate(spec.further_controls, 1):
        if not any(_asks_for_more(data_dir, label, number) for label in spec.backends):
            break
        train(data_dir, RunSpec(experiment_id=TRIAL, experiment=spec, arm=arm))
    (folder / DONE).touch()


def num_controls(data_dir: DataDir, label: str, most: int) -> int:
    """The number of controls that an experiment with this backend alone takes."""
    number = 1
    while number < most and _asks_for_more(data_dir, label, number):
        number += 1
    return number


def _asks_for_more(data_dir: DataDir, label: str, number: int) -> bool:
    controls = ["control", *(f"control-{i}" for i in range(2, number + 1))]
    roles = [
        ("baseline", "baseline"),
        *(("control", control) for control in controls),
        ("backend", label),
    ]
    runs = [(role, data_dir.run_dir(f"{TRIAL}.{name}")) for role, name in roles]
    return why_another_control(runs, "float32") is not None


def table(experiments: list[tuple[Path, Trained]]) -> str:
    lines = [
        "| backend | experiments | hold | unknown | broken | other | controls more |",
        "|---|---|---|---|---|---|---|",
    ]
    for label in (*CORRECT, *FAULTS):
        numbers = [
            num_controls(DataDir(folder), label, len(experiment.controls))
            for folder, experiment in experiments
        ]
        verdicts = Counter(
            experiment.judged(label, number).verdict
            for number, (_, experiment) in zip(numbers, experiments, strict=True)
        )
        other = verdicts.total() - sum(verdicts[name] for name in ("holds", "unknown", "broken"))
        lines.append(
            f"| {label} | {len(numbers)} | {verdicts['holds']} | {verdicts['unknown']} "
            f"| {verdicts['broken']} | {other} | {sum(numbers) / len(numbers) - 1:.2f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    quieten()
    parent, first, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + number):
        record(parent / str(seed), experiment(seed, *sys.argv[4:]))
    folders = [done.parent for done in sorted(parent.rglob(DONE))]
    sys.stdout.write(table([(folder, next(trained(folder))) for folder in folders]))


if __name__ == "__main__":
    main()
