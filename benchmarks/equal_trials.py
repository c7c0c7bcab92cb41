"""How often parity calls an equal training broken, and how many faults, with controls on demand.

Run from the project's root: `.venv/bin/python -m benchmarks.equal_trials DRAWS FOLDER [FOLDER ...]`

Each data folder has one experiment with sixteen controls (`breakeven compare --controls 16
--backends ''`). A draw takes a backend and five equal trainings from its runs. The supervisor's
rule decides how many of the five judge the backend. The fault is the same backend, whose losses are
shifted from a random step on by three times the range of the final losses of the five. Prints a
Markdown table.
"""

import sys
from pathlib import Path

import numpy as np

from benchmarks.losses.late_faults import SPREADS, Floats, is_broken
from benchmarks.tables import markdown
from breakeven.runner.experiments.queue import experiments
from breakeven.runner.loss_band import LEAD_STEPS, half_widths
from breakeven.runner.more_controls import why_open
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage.comparison.loading import load_evidence
from breakeven.storage.index.store import Store

NUM_EQUALS = 5


def recorded(folder: Path) -> Floats:
    """Losses of all runs up to the last step that all of them made: (runs, steps)."""
    data_dir = DataDir(folder)
    (submitted,) = experiments(data_dir)
    with Store.in_memory(data_dir) as store:
        _, runs = load_evidence(store, submitted.experiment_id)
    losses_by_run = [run.learning.losses.to_numpy(float) for run in runs]
    length = min(map(len, losses_by_run))
    return np.array([losses[:length] for losses in losses_by_run])


def verdict(equals: Floats, backend: Floats) -> tuple[bool, int]:
    """Whether windows break parity, and with how many controls."""
    by_step = [dict(enumerate(losses.tolist())) for losses in (*equals, backend)]
    used = 2
    while used < len(equals) and why_open(by_step[:used], by_step[-1:], "float32"):
        used += 1
    band = half_widths(by_step[0], by_step[1:used], "float32")
    after = max(band, default=-1) + 1 + LEAD_STEPS
    return is_broken(equals[:used], backend, after), used - 1


def rates(losses: Floats, num_draws: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    num_steps = losses.shape[1]
    verdicts = []
    for _ in range(num_draws):
        drawn = losses[rng.choice(len(losses), NUM_EQUALS + 1, replace=False)]
        equals, backend = drawn[:-1], drawn[-1]
        finals = equals[:, -num_steps // 10 :].mean(axis=1)
        begins = round(rng.uniform(0.1, 0.9) * num_steps)
        shift = SPREADS * float(np.ptp(finals)) * rng.choice([-1, 1])
        fault = backend + shift * (np.arange(num_steps) >= begins)
        verdicts.append((*verdict(equals, backend), *verdict(equals, fault)))
    broken, controls, caught, of_faults = np.mean(verdicts, axis=0)
    return {
        "equal trainings called broken": f"{broken:.1%}",
        "their controls": f"{controls:.2f}",
        "faults called broken": f"{caught:.1%}",
        "controls of faults": f"{of_faults:.2f}",
    }


def main() -> None:
    num_draws, folders = int(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]]
    rows = [{"training": folder.name, **rates(recorded(folder), num_draws)} for folder in folders]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
