"""How often parity is wrong about late faults and about correct backends.

Run from the project's root: `.venv/bin/python -m benchmarks.late_trials FOLDER [FOLDER ...]`

`parity_recording` fills the folders. Every experiment is judged with one, two and three of its
controls. The backends are correct, and so is the last control, which is none of these three but
another equal training. A fault counts if it moves the final loss (mean of the last tenth of the
steps) by more than three times the spread of the equal trainings: their range, and also their
standard deviation. Prints Markdown tables.
"""

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.parity_recording import CORRECT, DONE, GRAPHS
from benchmarks.tables import markdown
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.loading import load_evidence
from breakeven.storage.comparison.run_numbers import final_loss
from breakeven.storage.comparison.run_parity import EqualTrainings, judge_parity
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from tests.faults.late_faults import LATE_FAULTS
from tests.faults.trial import TRIAL

NUMBERS_OF_CONTROLS = (1, 2, 3)
MANY_SPREADS = 3.0
ANOTHER = "another control"


@dataclass(frozen=True)
class Trained:
    """A trained experiment."""

    workload: str
    spec: ExperimentSpec
    baseline: Evidence
    controls: list[Evidence]
    backends: dict[str, Evidence]

    def judged(self, label: str, num_controls: int) -> Parity:
        """The parity of a backend, or of the last control judged as a backend."""
        run = self.backends.get(label) or replace(self.controls[-1], role="backend")
        parity = judge_parity(
            self.spec,
            EqualTrainings.from_runs(self.spec, self.baseline, self.controls[:num_controls]),
            run,
        )
        assert parity is not None
        return parity

    def shift(self, label: str, spread: str) -> float:
        """Distance of a backend's final loss from those of equal trainings, in spreads."""
        finals = np.array(
            [final_loss(run.learning.losses) for run in (self.baseline, *self.controls)],
            dtype=float,
        )
        final = final_loss(self.backends[label].learning.losses)
        width = np.ptp(finals) if spread == "range" else finals.std(ddof=1)
        distance = abs(float("nan" if final is None else final) - finals.mean())
        return float(distance / width) if np.isfinite(distance) else float("inf")


def trained(folder: Path) -> Iterator[Trained]:
    for done in sorted(folder.rglob(DONE)):
        with Store.in_memory(DataDir(done.parent)) as store:
            spec, runs = load_evidence(store, TRIAL)
        by_label = {run.label: run for run in runs}
        yield Trained(
            workload=done.parent.parent.name.replace("_", " "),
            spec=spec,
            baseline=by_label["baseline"],
            controls=[run for run in runs if run.role == "control"],
            backends={run.label: run for run in runs if run.role == "backend"},
        )


def _correct(experiments: list[Trained]) -> Iterator[dict[str, object]]:
    for workload, members in _by_workload(experiments):
        for number in NUMBERS_OF_CONTROLS:
            verdicts = [
                [experiment.judged(label, number).verdict for label in _correct_labels(experiment)]
                for experiment in members
            ]
            counts = Counter(verdict for by_label in verdicts for verdict in by_label)
            yield {
                "workload": workload,
                "controls": number,
                "experiments": len(members),
                "with a false alarm": sum("broken" in by_label for by_label in verdicts),
                "runs": counts.total(),
                "broken": counts["broken"],
                "unknown": counts["unknown"],
            }


def _correct_labels(experiment: Trained) -> list[str]:
    """Backends, and the last control if it stays in the band, as a backend must: perturbed as much
    as the first control, it may leave the baseline long before by chance."""
    labels = [label for label in (*CORRECT, GRAPHS) if label in experiment.backends]
    apart = experiment.judged(ANOTHER, 1)
    return labels if apart.found_in_band else [*labels, ANOTHER]


def _faulty(experiments: list[Trained]) -> Iterator[dict[str, object]]:
    for workload, members in _by_workload(experiments):
        for number in NUMBERS_OF_CONTROLS:
            for spread in ("range", "standard deviation"):
                verdicts = Counter(
                    experiment.judged(fault, number).verdict
                    for experiment in members
                    for fault in LATE_FAULTS
                    if fault in experiment.backends
                    and experiment.shift(fault, spread) > MANY_SPREADS
                )
                yield {
                    "workload": workload,
                    "controls": number,
                    "spread": spread,
                    "faults beyond three": verdicts.total(),
                    "broken": verdicts["broken"],
                    "unknown": verdicts["unknown"],
                    "hold": verdicts.total() - verdicts["broken"] - verdicts["unknown"],
                }


def _by_workload(experiments: list[Trained]) -> Iterator[tuple[str, list[Trained]]]:
    groups: dict[str, list[Trained]] = defaultdict(list)
    for experiment in experiments:
        groups[experiment.workload].append(experiment)
    yield from groups.items()
    yield "all", experiments


def main() -> None:
    experiments = [experiment for folder in sys.argv[1:] for experiment in trained(Path(folder))]
    sys.stdout.write(
        f"{markdown(list(_correct(experiments)))}\n\n{markdown(list(_faulty(experiments)))}\n"
    )


if __name__ == "__main__":
    main()
