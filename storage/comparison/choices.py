"""Finds the fastest backend for each length of training, and the lengths at which it changes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.evidence import Evidence, of_role
from breakeven.storage.comparison.results import Choice, Result, baseline_beside, standings_of
from breakeven.storage.comparison.rounds import device_factor, paired_blocks, savings
from breakeven.storage.statistics.speedups import repaid_within


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """A run's training time as a line over steps of the experiment's batch size, without setting up
    and evaluation."""

    compile_seconds: float
    step_seconds: float
    """Seconds of a steady step."""

    def total_seconds(self, num_steps: float) -> float:
        """Seconds for a number of steps, including compiling."""
        return self.compile_seconds + self.step_seconds * num_steps


def estimate_time(result: Result, baseline: Result | None) -> TimeEstimate | None:
    """The line from the numbers of break-even; None without a steady step.

    A backend's step takes the baseline's step time minus the saving from paired rounds. The two
    lines therefore cross at `break_even_steps`.
    """
    base = baseline.measured.step_seconds if baseline else None
    compiling, step = result.measured.compile_seconds or 0.0, result.measured.step_seconds
    step = None if step is None else step / result.batch_times
    found = result.break_even
    if found is not None and base is not None:
        compiling, step = found.compile_seconds, base - found.gain
    elif result.speedup is not None and base is not None:
        step = base / result.speedup.median
    return None if step is None else TimeEstimate(compile_seconds=compiling, step_seconds=step)


def choices(
    spec: ExperimentSpec, results: Sequence[Result], runs: Sequence[Evidence]
) -> tuple[Choice, ...]:
    """The fastest choices by length of training, the shortest first: no compiler, or one of the
    backends that are faster beyond noise and do not break parity. Empty without a baseline. `runs`
    have the rounds of the results."""
    standing = standings_of(spec, results)
    baseline = None if standing.compares_nothing else standing.baseline
    faster = {one.label: one for one in standing.counted
              if one.speed_verdict == "faster"}  # fmt: skip
    found = {one.label: estimate_time(one, baseline_beside(spec, results, one.label))
             for one in (baseline, *faster.values()) if one}  # fmt: skip
    lines = {label: line for label, line in found.items() if line}
    if baseline is None or baseline.label not in lines:
        return ()
    chosen: list[Choice] = []
    before = None
    for label, at in _lowest(lines):
        low, high = None, None
        if before == baseline.label and (even := faster[label].break_even):
            low, high = even.low, even.high
        elif before is not None:
            low, high = _interval(spec, runs, before, label)
        chosen.append(Choice(
            label=None if label == baseline.label else label, from_steps=at,
            low=None if low is None else min(low, at), high=None if high is None else max(high, at),
        ))  # fmt: skip
        before = label
    return tuple(chosen)


def _lowest(lines: Mapping[str, TimeEstimate]) -> Iterator[tuple[str, float]]:
    """The lower envelope of the lines: each lowest line, and the number of steps from which on."""
    at = 0.0
    now = min(lines, key=lambda one: (lines[one].compile_seconds, lines[one].step_seconds))
    while True:
        yield now, at
        crossings = [
            (_crossing(lines[now], other), other.step_seconds, label)
            for label, other in lines.items()
            if other.step_seconds < lines[now].step_seconds
        ]
        if not crossings:
            return
        # If several lines cross here, the flattest is the lowest afterwards.
        at, _, now = min(crossings, key=itemgetter(0, 1))


def _crossing(steep: TimeEstimate, flat: TimeEstimate) -> float:
    """The number of steps at which two lines meet."""
    return (flat.compile_seconds - steep.compile_seconds) / (steep.step_seconds - flat.step_seconds)


def _interval(
    spec: ExperimentSpec, runs: Sequence[Evidence], steep: str, flat: str
) -> tuple[float | None, float | None]:
    """The interval of the steps after which the flat line's longer compiling has paid off, as for
    a break-even: savings of paired rounds, and the least and the greatest compile latencies."""
    by_label = {run.label: run for run in runs}
    if steep not in by_label or flat not in by_label:
        return None, None
    pairs = paired_blocks(by_label[steep], by_label[flat])
    if pairs.empty:
        return None, None
    saved, ends = savings(pairs, device_factor(spec, of_role(runs, "baseline"), pairs))
    less, more = (by_label[one].compile_latencies or [0.0] for one in (steep, flat))
    longer = (max(0.0, min(more) - max(less)), max(more) - min(less))
    return repaid_within(longer, saved, pairs["process"], ends)
