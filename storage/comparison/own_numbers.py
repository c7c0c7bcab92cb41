"""Parity of a backend that draws its own random numbers, whose losses no band can judge.

Its numbers are judged step by step where it drew none, in a rehearsal without dropout; what it
draws by what each dropout does; and both together by steps from one state with many draws
(docs/metrics.md; the measurements are in docs/parity.md).
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pandas as pd

from breakeven.runner.specs.training import Precision
from breakeven.storage.comparison.evidence import Evidence
from breakeven.storage.comparison.randomness import Randomness
from breakeven.storage.statistics.outcomes import Reading
from breakeven.storage.statistics.parity import Parity, ParityFinding, judge_losses, unknown
from breakeven.storage.statistics.random_numbers import find_dropout_faults, find_redraw_fault

FIRST_STEPS = 10
MAX_SHARE_OF_SPREAD = 0.1
"""Losses of the first steps that differ by less than this share of what other numbers make of a
loss were computed with the same numbers."""


def draws_own_numbers(baseline: pd.Series, run: Evidence, precision: Precision) -> bool:
    """Whether the run's losses say nothing step by step, because it draws other random numbers than
    the baseline.

    Its steps differ at the end of training, but so do those of a backend that is wrong. Other
    numbers are not why if the losses agree at first, or if it is wrong without dropout while its
    dropouts drop as many as they do without a compiler, to the last one.
    """
    randomness = run.randomness
    if not randomness.draws_own_numbers or _agree_at_first(
        baseline, run.losses, randomness.loss_spread
    ):
        return False
    eager, compiled = (
        [row["zeros"] for row in randomness.drawn(compiled=c)] for c in (False, True)
    )
    return not (
        eager and eager == compiled and _without_dropout(randomness, precision).verdict == "broken"
    )


def _agree_at_first(baseline: pd.Series, losses: pd.Series, spread: float) -> bool:
    pairs = pd.concat([baseline, losses], axis="columns", join="inner").sort_index()
    first = pairs.iloc[:FIRST_STEPS].astype(float)
    distance = math.sqrt(((first.iloc[:, 0] - first.iloc[:, 1]) ** 2).mean(skipna=False))
    return distance <= MAX_SHARE_OF_SPREAD * spread


def judge_own_numbers(baseline: pd.Series, run: Evidence, precision: Precision) -> Parity:
    """What the three checks say; the losses of training must only be finite where the baseline's
    are. Windows and evaluations are judged by who calls this."""
    randomness = run.randomness
    parity = _without_dropout(randomness, precision)
    faults = find_dropout_faults(randomness.drawn(compiled=False), randomness.drawn(compiled=True))
    if faults:
        found = ParityFinding(
            kind="dropout wrong", figures={"fault": faults[0], "count": len(faults)}
        )
        parity = _broken(parity, found)
    redrawn = find_redraw_fault(randomness.distances, randomness.changes, precision)
    if redrawn is not None:
        parity = _broken(parity, ParityFinding(kind="redraws differ", figures=asdict(redrawn)))
    wrong = _first_not_finite(baseline, run.losses)
    if wrong is not None:
        found = ParityFinding(kind="not finite", figures={"first_step_outside": wrong})
        parity = replace(_broken(parity, found), first_step_outside=wrong)
    return parity


def without_interval(readings: Sequence[Reading]) -> list[Reading]:
    """The effect of other random numbers on equal trainings is unknown: only the learning result
    can be judged."""
    return [replace(one, interval=math.inf) for one in readings]


def _without_dropout(randomness: Randomness, precision: Precision) -> Parity:
    forms = randomness.rehearsals
    own = ParityFinding(kind="own numbers")
    if not {"eager", "perturbed", "compiled"} <= forms.keys():
        return replace(unknown("no rehearsal"), findings=(own, ParityFinding(kind="no rehearsal")))
    found = judge_losses(
        forms["eager"], [forms["perturbed"]], forms["compiled"], precision, len(forms["eager"])
    )
    told_so = [
        ParityFinding(kind="rehearsal", figures={"verdict": found.verdict, **one.figures})
        if one.kind in ("inside band", "hardly outside", "outside band")
        else one
        for one in found.findings
    ]
    # Steps of a rehearsal are no steps of the training.
    return replace(found, first_step_outside=None, last_step_in_band=None, findings=(own, *told_so))


def _broken(parity: Parity, finding: ParityFinding) -> Parity:
    return replace(parity, verdict="broken", findings=(*parity.findings, finding))


def _first_not_finite(baseline: pd.Series, losses: pd.Series) -> int | None:
    pairs = pd.concat([baseline, losses], axis="columns", join="inner").astype(float)
    finite = pairs.map(math.isfinite)
    wrong = pairs.index[finite.iloc[:, 0] & ~finite.iloc[:, 1]]
    return int(wrong.min()) if len(wrong) else None
