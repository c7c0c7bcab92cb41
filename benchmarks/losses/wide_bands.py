"""Judges simulated arms that declare another mathematics, and may be worse within a wide band.

    python -m benchmarks.losses.wide_bands [TRAININGS]

Takes the kinds of `benchmarks.losses.outcomes`, and equal trainings that rounding drives apart. The
product's own judgement of parity judges all losses; controls are added as long as the supervisor's
rules ask for one. Prints for each kind and planted loss how many arms match step by step, and what
they are called. Ten minutes of a CPU.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.losses.outcomes import (
    END,
    KINDS,
    MARGIN,
    PLANTED,
    STEPS,
    TRAININGS,
    Floats,
    Strays,
    journal,
    simulated,
)
from benchmarks.tables import markdown
from breakeven.runner.more_controls import why_open
from breakeven.runner.open_outcomes import is_open
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment_fields import CONTROLS_FOR_WORSE
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.loading import load_evidence
from breakeven.storage.comparison.run_parity import EqualTrainings, judge_parity
from breakeven.storage.index.store import Store
from breakeven.storage.statistics.parity import Parity
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec

SPEC = experiment_spec(num_steps=STEPS, backends=("none:tf32=true",))
PRECISION = SPEC.training.precision
NAMES = {"holds": "matches", "not decided": "open", "unknown": "open"}
COLUMNS = ("matches", "as good", "open", "seems worse", "worse", "broken")


def rounding_grows(rng: np.random.Generator) -> Floats:
    """Rounding drives equal trainings apart, up to a quarter of the margin."""
    return np.minimum(1e-6 * np.exp(np.arange(STEPS) / 40), 0.005) * rng.normal(0, 1, STEPS)


def recorded(folder: Path) -> dict[str, Evidence]:
    """Baseline, control and arm, by role: their losses are to be replaced."""
    data_dir = DataDir(folder)
    for arm in SPEC.arms:
        run = Recording(data_dir.runs, arm.label, SPEC).claim().start()
        run.blocks([0.2] * (STEPS // 10), [END] * STEPS).end()
    with Store.in_memory(data_dir) as store:
        _, runs = load_evidence(store, EXPERIMENT_ID)
    return {run.role: run for run in runs}


def parity(
    runs: dict[str, Evidence], equals: Sequence[Floats], own: Floats, *, by_steps: bool = False
) -> Parity:
    spec = replace(SPEC, same="steps") if by_steps else SPEC
    controls = [_with(runs["control"], losses) for losses in equals[1:]]
    trainings = EqualTrainings.from_runs(spec, _with(runs["baseline"], equals[0]), controls)
    judged = judge_parity(spec, trainings, _with(runs["backend"], own))
    assert judged is not None
    return judged


def _with(run: Evidence, losses: Floats) -> Evidence:
    series = pd.Series(losses, index=pd.RangeIndex(STEPS, name="step"))
    return replace(run, learning=replace(run.learning, losses=series))


def asks_for_control(equals: Sequence[Floats], own: Floats) -> bool:
    trainings = [journal(losses) for losses in (*equals, own)]
    *known, arm = (training.losses for training in trainings)
    return why_open(known, [arm], PRECISION) is not None or is_open(
        trainings[:-1], trainings[-1], MARGIN, band_in=PRECISION
    )


def row(runs: dict[str, Evidence], strays: Strays, planted: float, count: int) -> dict[str, object]:
    rng = np.random.default_rng(0)
    called, num_controls, num_matching = Counter[str](), 0, 0
    for _ in range(count):
        own, equal = simulated(rng, strays, planted)
        equals = [equal(), equal()]
        while len(equals) <= CONTROLS_FOR_WORSE and asks_for_control(equals, own):
            equals.append(equal())
        judged = parity(runs, equals, own)
        name = NAMES.get(judged.verdict, judged.verdict)
        called["seems worse" if judged.seems_worse else name] += 1
        by_steps = parity(runs, equals, own, by_steps=True) if judged.by_outcome else judged
        num_matching += by_steps.verdict == "holds"
        num_controls += len(equals) - 1
    return {
        "controls": f"{num_controls / count:.1f}",
        "planted, in margins": planted,
        "matches step by step": f"{num_matching / count:.1%}",
        **{name: f"{called[name] / count:.1%}" for name in COLUMNS},
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else TRAININGS
    with tempfile.TemporaryDirectory() as folder:
        runs = recorded(Path(folder))
    kinds = {**KINDS, "rounding drives trainings a quarter of the margin apart": rounding_grows}
    rows = [
        {"trainings": kind, **row(runs, strays, planted, count)}
        for kind, strays in kinds.items()
        for planted in PLANTED
    ]
    sys.stdout.write(f"{markdown(rows)}\n")


if __name__ == "__main__":
    main()
