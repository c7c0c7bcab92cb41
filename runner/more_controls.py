"""Decides from the losses whether a training needs another control, once all runs have finished.

One control suffices for a backend whose losses are close to those of baseline and controls, and for
a backend whose losses differ by more than the training learned, which is a fault. Between these
limits one control seldom decides and four mostly do. The same is true where single losses leave the
band by little, and where windows of losses would break parity: one control may be close to the
baseline by chance (docs/decisions.md).
"""

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean, pvariance
from typing import NamedTuple, get_args

from breakeven.runner.loss_band import LEAD_STEPS, Losses, half_widths, leaves_open
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision

NUM_WINDOWS = 10
MIN_WINDOW_STEPS = 5
CLOSE, FAR = 1 / 8, 1.0
"""A difference between these shares of the learned loss needs another control. `CLOSE` is half of
the largest difference that parity calls the same; a loss that is higher by more than `FAR` is
broken in any case. A loss that is lower by more may be that of a training that began to learn
earlier."""
AT_ONCE = 0.01
"""A correct backend with the same random numbers differs by less than this share of the learned
loss in the first steps: there single losses decide, and more controls do not help."""
STRAYS = 3.0
"""A window may break parity from this many standard errors on, times the inflation of the equal
trainings. Parity's own limit is farther away."""
MAX_SECONDS = 600.0
"""Longest time of all further controls together, for which a user waits without a request."""


class Training(NamedTuple):
    """The training of a finished run, from its journal."""

    losses: Losses
    seconds: float
    """Seconds of training and evaluation."""
    precision: str | None
    """The precision of its computation, if recorded."""
    evaluations: dict[int, dict[str, float]]
    """Loss and accuracy, where known, of the first split without a compiler, by steps done."""


def why_another_control(finished: Iterable[tuple[str, RunDir]], precision: Precision) -> str | None:
    """Why another control is needed, in a sentence; None if it is not needed, or if it and all
    others beyond the first take more than `MAX_SECONDS`. `finished`: roles and folders.
    `precision`: of the specification, used if the baseline recorded no known precision.

    Raises `RunnerError`, `LookupError`, `TypeError` or `ValueError` for a damaged journal.
    """
    trainings: dict[str, list[Training]] = {}
    for role, run in finished:
        trainings.setdefault(role, []).append(read_training(run))
    baselines, controls = trainings.get("baseline", []), trainings.get("control", [])
    seconds = max((control.seconds for control in controls), default=0.0)
    if not baselines or not controls or len(controls) * seconds > MAX_SECONDS:
        return None
    computed_in = baselines[0].precision
    precision = next((known for known in get_args(Precision) if known == computed_in), precision)
    equals = [training.losses for training in (*baselines, *controls)]
    why = why_open(
        equals, [training.losses for training in trainings.get("backend", [])], precision
    )
    return why and f"one more control, which takes about {seconds:.0f} s: {why}"


def why_open(
    equals: Sequence[Losses], backends: Sequence[Losses], precision: Precision
) -> str | None:
    """Why so few equal trainings do not decide about all backends; None if they do. The baseline is
    the first of `equals`."""
    distances = [distance(equals, losses) for losses in backends]
    apart = max((length for length in distances if length <= FAR), default=0.0)
    if apart > CLOSE:
        return (
            f"the losses of a backend lie {100 * apart:.0f} % of what was learned from those of "
            f"{len(equals)} equal trainings"
        )
    if any(leaves_open(equals, losses, precision) for losses in backends):
        return (
            f"single losses of a backend leave the band of {len(equals)} equal trainings by little"
        )
    pairs = zip(backends, distances, strict=True)
    close = [losses for losses, length in pairs if length <= FAR]
    if any(strays(equals, losses, precision) for losses in close):
        return f"windows of a backend's losses differ from those of {len(equals)} equal trainings"
    return None


def judged_runs(
    spec: ExperimentSpec, environment: str | None, finished: Iterable[tuple[RunDir, Arm]]
) -> list[tuple[str, RunDir]]:
    """Roles and folders of the runs that baseline and controls of an environment judge: its own,
    and in the first environment also those of the others except controls. Runs that are judged by
    their outcome in any case are other trainings."""
    judges_all = environment == spec.environment_names[0]
    return [
        (arm.role if arm.environment == environment else "backend", run)
        for run, arm in finished
        if arm.batch_times == 1 and (spec.same != "outcome" or arm.role != "backend")
        if arm.environment == environment or (judges_all and arm.role != "control")
    ]


def distance(equals: Sequence[Losses], backend: Losses) -> float:
    """The largest difference between the mean losses of a backend and those of equal trainings over
    tenths of the training. It is a share of the learned loss: the largest fall of an equal
    training's loss from the first five steps to its lowest tenth. 0 if the training is too short,
    nothing was learned, or the backend differed at once or has the baseline's losses, bit for bit.
    Lower means count as at most `FAR`. The baseline is the first of `equals`."""
    if backend == equals[0]:
        return 0.0
    steps = sorted(step for step in backend if all(step in losses for losses in equals))
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    if len(steps) < NUM_WINDOWS * MIN_WINDOW_STEPS:
        return 0.0
    windows = [steps[end - size : end] for end in range(len(steps), size - 1, -size)]
    means_of_equals = [_means(losses, windows) for losses in equals]
    learned = max(
        _means(losses, [steps[:MIN_WINDOW_STEPS]])[0] - min(means)
        for losses, means in zip(equals, means_of_equals, strict=True)
    )
    at_once = max(
        abs(backend[step] - fmean(losses[step] for losses in equals))
        for step in steps[:MIN_WINDOW_STEPS]
    )
    if not learned > 0 or at_once > AT_ONCE * learned:
        return 0.0
    expected = map(fmean, zip(*means_of_equals, strict=True))
    means_of_backend = _means(backend, windows)
    lead = [(a - b) / learned for a, b in zip(means_of_backend, expected, strict=True)]
    return max(min(FAR, -share) if share < 0 else share for share in lead)


def strays(equals: Sequence[Losses], backend: Losses, precision: Precision) -> bool:
    """Whether windows of a backend's losses after the band may break parity: the last one, or two
    neighbours. The windows are those of `storage/statistics/outcomes.py`, and so are error and
    inflation. A backend outside the band does not count, because there single losses decide."""
    half = half_widths(equals[0], equals[1:], precision)
    is_outside = any(
        abs(backend[step] - equals[0][step]) > half[step] for step in half if step in backend
    )
    if is_outside or backend == equals[0]:
        return False
    after = max(half, default=-1) + LEAD_STEPS
    steps = sorted(
        step for step in backend if step > after and all(step in losses for losses in equals)
    )
    size = max(MIN_WINDOW_STEPS, len(steps) // NUM_WINDOWS)
    windows = [
        _window(equals, backend, steps[end - size : end])
        for end in range(len(steps), size - 1, -size)
    ]
    squares = [(window.spread / window.error) ** 2 for window in windows if window.error]
    inflation = max(1.0, math.sqrt(fmean(squares or [0.0])))
    unit = STRAYS * inflation * math.sqrt(1 + 1 / len(equals))
    outside = [window.distance > unit * window.error for window in windows]
    return any(outside[:1]) or any(a and b for a, b in pairwise(outside))


class _Window(NamedTuple):
    """Mean losses over some steps."""

    distance: float
    """Between the backend and the mean of the equal trainings."""
    spread: float
    """Standard deviation of the equal trainings."""
    error: float
    """Standard error of one of them, from its single losses."""


def _window(equals: Sequence[Losses], backend: Losses, steps: Sequence[int]) -> _Window:
    expected = [fmean(losses[step] for losses in equals) for step in steps]
    strayed = [
        [losses[step] - mean for step, mean in zip(steps, expected, strict=True)]
        for losses in equals
    ]
    bessel = len(equals) / (len(equals) - 1)
    return _Window(
        distance=abs(fmean(backend[step] for step in steps) - fmean(expected)),
        spread=math.sqrt(bessel * fmean(fmean(deviations) ** 2 for deviations in strayed)),
        error=math.sqrt(bessel * fmean(map(pvariance, strayed)) / len(steps)),
    )


def _means(losses: Losses, windows: Iterable[Sequence[int]]) -> list[float]:
    return [fmean(losses[step] for step in window) for window in windows]


def read_training(run: RunDir) -> Training:
    losses: dict[int, float] = {}
    seconds, precision = 0.0, None
    by_split: dict[str, dict[int, dict[str, float]]] = {}
    for event in each_event(run.events_file):
        if event["kind"] == "step" and event.get("loss") is not None:
            losses[int(event["step"])] = float(event["loss"])
        elif event["kind"] in ("block", "evaluation"):
            seconds += float(event["seconds"])
        elif event["kind"] == "workload":
            precision = event.get("precision")
        if event["kind"] == "evaluation" and not event.get("compiled"):
            known = {
                name: float(event[name])
                for name in ("loss", "accuracy")
                if event.get(name) is not None
            }
            by_split.setdefault(event.get("split") or "validation", {})[int(event["step"])] = known
    return Training(losses, seconds, precision, next(iter(by_split.values()), {}))
