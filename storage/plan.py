"""How long a training of a given number of steps takes under each run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from breakeven.runner.commands.length import Length, Unit
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.results import Comparison, Result, standings
from breakeven.storage.errors import StoreError

MAX_STEPS = 1_000_000_000


class UnknownLength(StoreError):
    """A length of training that an experiment cannot count in steps."""


def own_steps(comparison: Comparison) -> int:
    """For how many steps the experiment itself trained, or the training is planned for which a
    search looks; at least 1."""
    if comparison.spec.kind.searches or comparison.spec.confirms is not None:
        return comparison.spec.tune.steps
    done = max((result.measured.num_steps for result in comparison.results), default=0)
    return done or comparison.spec.num_steps or 1


def steps_of(length: Length, comparison: Comparison) -> int:
    """How many steps of this experiment a training of that length has. Raises `UnknownLength`."""
    size = _unit_steps(comparison)[length.unit]
    if size is None:
        raise UnknownLength(f"this experiment has no number of {length.unit} per step")
    steps = round(length.amount * size)
    if not 0 < steps <= MAX_STEPS:
        raise UnknownLength(f"{length.amount:g} {length.unit} have {steps:.3g} steps here; a plan "
                            f"has from 1 to {MAX_STEPS:,}")  # fmt: skip
    return steps


def _unit_steps(comparison: Comparison) -> dict[Unit, float | None]:
    """How many steps each unit of length is; None where that is not known."""
    baseline = of_role(comparison.results, "baseline")
    numbers = baseline.measured if baseline else None
    step = numbers.step_seconds if numbers else None
    spec = comparison.spec

    def per_step(rate: float | None) -> float | None:
        return 1 / (rate * step) if rate and step else None

    return {
        "steps": 1.0,
        "epochs": None if spec.is_script else float(spec.steps_per_epoch),
        "samples": per_step(numbers.samples_per_second if numbers else None),
        "tokens": per_step(numbers.tokens_per_second if numbers else None),
        "hours": 3600 / step if step else None,
    }


@dataclass(frozen=True, kw_only=True)
class TimeEstimate:
    """A run's training time as a line over steps; setting up and evaluating are left out."""

    compile_seconds: float
    step_seconds: float
    """Of a steady step."""

    def total_seconds(self, num_steps: float) -> float:
        """Compiling included."""
        return self.compile_seconds + self.step_seconds * num_steps


def estimate_time(result: Result, baseline: Result | None) -> TimeEstimate | None:
    """The line through the numbers that break-even rests on; None without a steady step.

    Against the baseline the paired rounds count: a backend's step takes the baseline's step less
    what a step saves. The two lines therefore cross at `break_even_steps`.
    """
    base = baseline.measured.step_seconds if baseline else None
    compiling, step = result.measured.compile_seconds or 0.0, result.measured.step_seconds
    found = result.break_even
    if found is not None and base is not None:
        compiling, step = found.compile_seconds, base - found.gain
    elif result.speedup is not None and base is not None:
        step = base / result.speedup.median
    return None if step is None else TimeEstimate(compile_seconds=compiling, step_seconds=step)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """What takes the least time from a length of training on."""

    from_steps: float
    """Where its line crosses that of the choice before; 0 of the first."""
    label: str | None
    """The backend; None for no compiler."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to train with, for a training of so many steps."""

    num_steps: int
    totals: dict[str, float]
    """Seconds by label, compiling included."""
    best: Result | None
    """The backend that is surely faster and takes the least time; None for no compiler."""
    baseline: str
    """Its label."""
    joules: Mapping[str, float] = field(default_factory=dict)
    """Energy of the steps by label, without that of compiling; of runs whose device counts it."""
    num_devices: int = 1
    choices: tuple[Choice, ...] = ()
    """By length of training, the shortest first; empty without a baseline."""

    @property
    def baseline_seconds(self) -> float | None:
        return self.totals.get(self.baseline)


def plan(comparison: Comparison, num_steps: int) -> Plan:
    """A choice is a backend that is faster beyond noise and does not break parity, or no compiler;
    the best is the one that takes the least time for so many steps."""
    baseline = of_role(comparison.results, "baseline")
    found = {one.label: estimate_time(one, baseline) for one in comparison.results}
    estimates = {label: one for label, one in found.items() if one}
    totals = {label: one.total_seconds(num_steps) for label, one in estimates.items()}
    faster = {one.label: one for one in standings(comparison).counted
              if one.speed_verdict == "faster" and one.label in estimates}  # fmt: skip
    choices: tuple[Choice, ...] = ()
    if baseline is not None and baseline.label in estimates:
        lines: dict[str | None, TimeEstimate] = {label: estimates[label] for label in faster}
        choices = tuple(_choices({None: estimates[baseline.label], **lines}))
    chosen = chosen_for(num_steps, choices)
    return Plan(
        num_steps=num_steps,
        totals=totals,
        best=faster.get(chosen.label or "") if chosen else None,
        baseline=comparison.baseline,
        joules={
            one.label: one.measured.energy_per_step * num_steps
            for one in comparison.results
            if one.measured.energy_per_step is not None
        },
        num_devices=comparison.spec.num_devices,
        choices=choices,
    )


def chosen_for(num_steps: int, choices: Sequence[Choice]) -> Choice | None:
    """The choice for a training of so many steps; None without any."""
    return next((one for one in reversed(choices) if one.from_steps < num_steps), None)


def _choices(lines: Mapping[str | None, TimeEstimate]) -> Iterator[Choice]:
    """The lower envelope of the lines: what is the lowest from where on."""
    at = 0.0
    now = min(lines, key=lambda one: (lines[one].compile_seconds, lines[one].step_seconds))
    while True:
        yield Choice(from_steps=at, label=now)
        crossings = [
            (_crossing(lines[now], other), other.step_seconds, label)
            for label, other in lines.items()
            if other.step_seconds < lines[now].step_seconds
        ]
        if not crossings:
            return
        # Of lines that cross at the same place the flattest is the lowest from there on.
        at, _, now = min(crossings, key=itemgetter(0, 1))


def _crossing(steep: TimeEstimate, flat: TimeEstimate) -> float:
    """The number of steps at which two lines meet."""
    return (flat.compile_seconds - steep.compile_seconds) / (steep.step_seconds - flat.step_seconds)
