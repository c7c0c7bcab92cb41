"""Finds the fastest backend for each length of training, the lengths at which it changes, and the
duration of a training with a given number of steps under each run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import itemgetter
from statistics import median

from breakeven.runner.arguments.lengths import Length, Unit
from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage.comparison.answer_decision import Answer, answer, may_pay
from breakeven.storage.comparison.evidence import of_role
from breakeven.storage.comparison.pairs import beside, savings
from breakeven.storage.comparison.results import (
    Choice,
    Comparison,
    Result,
    Standings,
    baseline_beside,
    standings,
    standings_of,
    with_parity_across,
)
from breakeven.storage.errors import StoreError
from breakeven.storage.statistics.break_even import break_even, repaid_within


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
    even = result.break_even
    if even is not None and base is not None:
        compiling, step = even.compile_seconds, base - even.gain
    elif result.speedup is not None and base is not None:
        step = base / result.speedup.median
    return None if step is None else TimeEstimate(compile_seconds=compiling, step_seconds=step)


def _ends(result: Result, baseline: Result | None) -> tuple[TimeEstimate, TimeEstimate] | None:
    """The lines at both ends of the speedup's interval, the faster one first; None without one."""
    line, ratio = estimate_time(result, baseline), result.speedup
    step = baseline.measured.step_seconds if baseline else None
    if line is None or step is None or ratio is None or ratio.low is None or ratio.high is None:
        return None
    fastest, slowest = (
        replace(line, step_seconds=step / times) for times in (ratio.high, ratio.low)
    )
    return fastest, slowest


def total_interval(
    result: Result, baseline: Result | None, num_steps: int
) -> tuple[float, float] | None:
    """The interval of the seconds of a training, from those of the speedup and the shortest and
    the longest compile latency; None if the speedup has none."""
    ends = _ends(result, baseline)
    if ends is None:
        return None
    latencies = result.timing.compile_latencies or (ends[0].compile_seconds,)
    fastest, slowest = (
        replace(line, compile_seconds=latency)
        for line, latency in zip(ends, (min(latencies), max(latencies)), strict=True)
    )
    return fastest.total_seconds(num_steps), slowest.total_seconds(num_steps)


@dataclass(frozen=True, kw_only=True)
class TimeToLoss:
    """Seconds until a training has a loss for good, compiling included."""

    loss: float
    seconds: float
    low: float
    high: float
    """95 % interval; infinite if it may not reach it within the training."""
    surely: float
    """The upper end for a loss that is lower by the margin, too."""
    expected: float
    """The baseline's seconds."""

    @property
    def is_sooner(self) -> bool:
        """Whether it surely takes less time than the baseline."""
        return self.surely < self.expected

    @property
    def differs(self) -> bool:
        """Whether the baseline's time is outside of the interval."""
        return not self.low <= self.expected <= self.high


def time_to_loss(result: Result, baseline: Result | None) -> TimeToLoss | None:
    """None for a run that was not judged by its outcome, and without the interval of its speed."""
    line, ends = estimate_time(result, baseline), _ends(result, baseline)
    base = estimate_time(baseline, baseline) if baseline else None
    to_loss = result.parity and result.parity.to_loss
    if not to_loss or line is None or base is None or ends is None:
        return None
    fastest, slowest = ends
    return TimeToLoss(
        loss=to_loss.loss,
        seconds=line.total_seconds(to_loss.steps),
        low=fastest.total_seconds(to_loss.low),
        high=slowest.total_seconds(to_loss.high),
        surely=slowest.total_seconds(to_loss.surely),
        expected=base.total_seconds(to_loss.expected),
    )


def choices(spec: ExperimentSpec, results: Sequence[Result]) -> tuple[Choice, ...]:
    """The fastest choices by length of training, the shortest first: the baseline, or one of the
    backends that are faster beyond noise, or compile for less time, and do not break parity.
    Another training whose outcome is open is no choice. Empty without a baseline."""
    standing = standings_of(spec, results)
    baseline = None if standing.compares_nothing else standing.baseline
    usable = {result.label: result for result in standing.counted if result.may_be_used}
    estimates = {
        result.label: estimate_time(result, baseline_beside(spec, results, result.label))
        for result in (baseline, *usable.values())
        if result
    }
    lines = {label: line for label, line in estimates.items() if line}
    if baseline is None or baseline.label not in lines:
        return ()
    chosen: list[Choice] = []
    before = None
    for label, at in _lower_envelope(lines):
        low, high = None, None
        if before is not None and baseline.label in (before, label):
            even = usable[before if label == baseline.label else label].break_even
            low, high = (even.low, even.high) if even else (None, None)
        elif before is not None:
            low, high = _interval(usable[before], usable[label])
        chosen.append(
            Choice(
                label=None if label == baseline.label else label,
                from_steps=at,
                low=None if low is None else min(low, at),
                high=None if high is None else max(high, at),
            )
        )
        before = label
    return tuple(chosen)


def _lower_envelope(lines: Mapping[str, TimeEstimate]) -> Iterator[tuple[str, float]]:
    """The lower envelope of the lines: each lowest line, and the number of steps from which on."""
    at = 0.0
    now = min(lines, key=lambda label: (lines[label].compile_seconds, lines[label].step_seconds))
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


def _interval(steep: Result, flat: Result) -> tuple[float | None, float | None]:
    """The interval of the steps after which the flat line's longer compiling has paid off, as for
    a break-even: savings of paired rounds, and the least and the greatest compile latencies."""
    pairs = beside(steep.timing.rounds, flat.timing.rounds)
    if pairs.empty:
        return None, None
    less, more = (result.timing.compile_latencies or (0.0,) for result in (steep, flat))
    longer = (max(0.0, min(more) - max(less)), max(more) - min(less))
    return repaid_within(longer, savings(pairs), pairs["process"])


def in_starts(comparison: Comparison, starts: int) -> Comparison:
    """The comparison for a training that is made in so many processes, one after another: each
    compiles, the first one with empty caches and later ones with those that it left. A run whose
    later start was not timed compiles each time as the first one. The energy of later compiling is
    not known."""
    if starts == 1:
        return comparison
    results = tuple(_in_starts(comparison, result, starts) for result in comparison.results)
    again = choices(comparison.spec, with_parity_across(results, comparison.across))
    return replace(comparison, results=results, choices=again)


def _in_starts(comparison: Comparison, result: Result, starts: int) -> Result:
    latencies, even = _latencies_of(result, starts), result.break_even
    baseline = comparison.baseline_of(result.label)
    if even is not None and baseline is not None and baseline.measured.step_seconds is not None:
        rounds = result.timing.rounds
        even = break_even(
            result.speed_verdict,
            latencies,
            savings(rounds),
            baseline.measured.step_seconds,
            None,
            rounds["process"],
            baseline_latencies=_latencies_of(baseline, starts),
            floor=comparison.noise_floor or 0.0,
        )
    compiling = median(latencies) if latencies else None
    return replace(
        result,
        measured=replace(result.measured, compile_seconds=compiling),
        timing=replace(result.timing, compile_latencies=latencies),
        break_even=even,
        energy=result.energy and replace(result.energy, break_even=None),
    )


def _latencies_of(result: Result, starts: int) -> tuple[float, ...]:
    """Seconds that each process of a run compiles in all starts together."""
    warm = result.measured.warm_compile_seconds
    return tuple(
        first + (starts - 1) * (first if warm is None else warm)
        for first in result.timing.compile_latencies
    )


MAX_STEPS = 1_000_000_000


class UnknownLength(StoreError):
    """A length of training that this experiment cannot convert to steps."""


def own_steps(comparison: Comparison) -> int | None:
    """The planned steps, or else those of the experiment's own training or search;
    None if it is unknown before the first step, and if measuring ends by itself, because this says
    nothing about a training."""
    spec, results = comparison.spec, comparison.results
    if spec.is_of_search:
        return spec.tune.steps
    if not spec.kind.trains_fully:
        return None
    if spec.plan.steps is not None:
        return spec.plan.steps
    done = max((result.measured.num_steps for result in results), default=0)
    states = [RunState(result.state) for result in results]
    # A training that ended by itself, however early, has as many steps as it made.
    is_over = RunState.FINISHED in states and not any(state.is_active for state in states)
    return (0 if is_over else spec.num_steps) or done or spec.num_steps or None


def steps_of(length: Length, comparison: Comparison) -> int:
    """A length of training in steps of this experiment; raises `UnknownLength`."""
    size = _unit_steps(comparison)[length.unit]
    if size is None:
        raise UnknownLength(f"this experiment has no number of {length.unit} per step")
    steps = round(length.amount * size)
    if not 0 < steps <= MAX_STEPS:
        raise UnknownLength(
            f"{length.amount:g} {length.unit} have {steps:,} steps here; a plan "
            f"has from 1 to {MAX_STEPS:,}"
        )
    return steps


def _unit_steps(comparison: Comparison) -> dict[Unit, float | None]:
    """The number of steps in each unit of length; None if unknown."""
    baseline = of_role(comparison.results, "baseline")
    numbers = baseline.measured if baseline else None
    step = numbers.step_seconds if numbers else None
    spec = comparison.spec

    def per_step(rate: float | None) -> float | None:
        return 1 / (rate * step) if rate and step else None

    return {
        "steps": 1.0,
        "epochs": float(spec.steps_per_epoch) if spec.workload.is_specified else None,
        "samples": per_step(numbers.samples_per_second if numbers else None),
        "tokens": per_step(numbers.tokens_per_second if numbers else None),
        "hours": 3600 / step if step else None,
    }


@dataclass(frozen=True)
class Compiling:
    """Seconds of compiling in one process of a run."""

    first: float
    """With empty compile caches."""
    later: float | None
    """With the caches of the first one; None if that was not timed."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The answer for a training of `num_steps` steps, with all expected times.

    Everything that recommends a backend shows this judgement.
    """

    num_steps: int | None
    """None without a planned length: then `totals` is empty."""
    starts: int = 1
    """Processes in which these steps are made. With more than one, all compile latencies here and
    in results are those of all starts together."""
    compiling: Mapping[str, Compiling] = field(default_factory=dict)
    """By label, what one start compiles, for runs with a known compile latency."""
    answer: Answer | None
    """None if runs are not compared, or without a backend to judge."""
    totals: dict[str, float]
    """Seconds by label, including compiling."""
    total_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """95 % intervals of the totals whose runs have one."""
    best: Result | None
    """The backend to use; None for any other answer, and without a planned length."""
    leading: Result | None = None
    """The backend of the headline: the best one; if no compiler is best, the first one that pays
    off later; without a length, or if none pays off, the one with the fastest step; else another
    training that is faster and may be worse. None if no backend is surely faster."""
    baseline: str
    """Label of the baseline."""
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a steady step by label, also without a planned length."""
    step_joules: Mapping[str, float] = field(default_factory=dict)
    """Energy of a steady step by label, for runs with measured energy."""
    compile_joules: Mapping[str, float] = field(default_factory=dict)
    """Energy of compiling by label, where it is known."""
    num_devices: int = 1
    longer: str = "more steps"
    """What lets such an experiment time more rounds, as the subject of a sentence."""
    has_only_compilers: bool = True
    """Whether the baseline has no compiler, and all arms differ from it by theirs and its
    settings."""
    compiles_baseline: bool = False
    choices: tuple[Choice, ...] = ()
    """Fastest backends by length of training, the shortest first; empty without a baseline."""
    chosen: Choice | None = None
    """The choice of `best`; None without a length or choices."""
    subject: Result | None = None
    """The backend that the answer is about."""
    rival: Result | None = None
    """A backend that may take less than the best one, but not surely, or whose training may be
    worse."""
    time_to_loss: TimeToLoss | None = None
    """Of an arm that is not faster, but surely needs less time to the same loss than the
    baseline."""

    @property
    def baseline_seconds(self) -> float | None:
        return self.totals.get(self.baseline)

    @property
    def joules(self) -> dict[str, float]:
        """Energy of the steps by label, without compiling, for runs with measured energy."""
        steps = self.num_steps
        return (
            {}
            if steps is None
            else {label: steps * energy for label, energy in self.step_joules.items()}
        )

    @property
    def is_open(self) -> bool:
        """Whether it is not decided which run takes the least time."""
        has_answer = self.answer is not None and self.answer.kind != "not decided"
        return not has_answer or self.rival is not None

    @property
    def is_sure(self) -> bool:
        """Whether there is an answer, and no other backend may take less."""
        is_decided = self.answer is not None and self.answer.kind != "not decided"
        return is_decided and not self.unsure_changes and self.rival is None

    @property
    def unsure_changes(self) -> list[tuple[str, Choice]]:
        """Changes from one backend (its label) to the next choice, before or after the choice of
        this length, whose intervals have the planned length."""
        steps = self.num_steps or 0
        return [
            (earlier.label, later)
            for earlier, later in pairwise(self.choices)
            if earlier.label is not None
            and self.chosen in (earlier, later)
            and later.low is not None
            and later.high is not None
            and later.low < steps < later.high
        ]


@dataclass(frozen=True)
class ChoiceWords:
    """How sentences call the alternatives of an experiment."""

    arm: str
    decline: str
    """What to do if no arm pays off."""
    without: str
    """How a training is made that takes no arm."""
    refused: str
    """What to do if every arm failed or is wrong."""


COMPILERS = ChoiceWords("backend", "do not compile", "without a compiler", "nothing worked")
ARMS = ChoiceWords("arm", "keep the baseline", "with the baseline", "keep the baseline")


def choice_words(planned: Plan) -> ChoiceWords:
    return COMPILERS if planned.has_only_compilers else ARMS


def plan(comparison: Comparison, num_steps: int | None, starts: int = 1) -> Plan:
    """The plan for a number of steps, made in so many starts. Choices are the baseline, and
    backends that may be used for some length; the best one surely pays, and takes the least
    time."""
    compiling = {
        result.label: Compiling(first, result.measured.warm_compile_seconds)
        for result in comparison.results
        if (first := result.measured.compile_seconds) is not None
    }
    comparison = in_starts(comparison, starts)
    standing = standings(comparison)
    estimates = {}
    if comparison.spec.kind.has_speedups and not standing.compares_nothing:
        lines = {
            result.label: estimate_time(result, comparison.baseline_of(result.label))
            for result in comparison.of_all_environments
            if not (result.is_uncompiled or result.is_wrong)
        }
        estimates = {label: line for label, line in lines.items() if line}
    totals = (
        {}
        if num_steps is None
        else {label: line.total_seconds(num_steps) for label, line in estimates.items()}
    )
    intervals = {
        result.label: total_interval(result, comparison.baseline_of(result.label), num_steps)
        for result in comparison.of_all_environments
        if num_steps is not None and result.label in estimates
    }
    usable = {result.label: result for result in standing.counted if result.may_be_used}
    baseline = standing.baseline.measured.step_seconds if standing.baseline else None
    unsure = {label for label, result in usable.items() if may_pay(result, num_steps, baseline)}
    choices = comparison.choices
    chosen = _chosen_for(num_steps, [choice for choice in choices if choice.label not in unsure])
    best = usable.get(chosen.label or "") if chosen else None
    # A speedup is about the baseline of the same environment, so that of steps is another order.
    steps = {label: line.step_seconds for label, line in estimates.items()}
    fastest = min(
        usable.values(), key=lambda result: steps.get(result.label, math.inf), default=None
    )
    later = (
        usable[choice.label]
        for choice in choices
        if choice.label and chosen is not None and choice.from_steps > chosen.from_steps
    )
    leading = best or next(later, fastest)
    sooner = _learns_sooner(comparison, standing)
    decided = answer(
        comparison, standing, best if num_steps else leading, sooner, num_steps, totals
    )
    if decided is not None and decided.kind != "use":
        best = None
    about = decided.backend if decided else None
    subject = next((result for result in comparison.results if result.label == about), None)
    if leading is None and subject is not None and subject.has_open_outcome:
        leading = subject
    return Plan(
        num_steps=num_steps,
        starts=starts,
        compiling=compiling,
        answer=decided,
        totals=totals,
        total_intervals={label: ends for label, ends in intervals.items() if ends is not None},
        best=best,
        leading=leading,
        baseline=comparison.baseline,
        step_seconds=steps,
        step_joules={
            result.label: result.measured.energy_per_step / result.batch_times
            for result in comparison.results
            if result.measured.energy_per_step is not None
        },
        compile_joules=_joules_of_compiling(comparison),
        num_devices=comparison.spec.num_devices,
        longer=comparison.spec.kind.longer,
        has_only_compilers=not (comparison.spec.named_arms or _compiles_baseline(comparison.spec)),
        compiles_baseline=_compiles_baseline(comparison.spec),
        choices=choices,
        chosen=chosen,
        subject=subject,
        rival=None if best is None else _rival(standing, totals, best),
        time_to_loss=(
            None if sooner is None else time_to_loss(sooner, comparison.baseline_of(sooner.label))
        ),
    )


def _compiles_baseline(spec: ExperimentSpec) -> bool:
    return any(arm.backend is not None for arm in spec.arms[:1])


def _joules_of_compiling(comparison: Comparison) -> dict[str, float]:
    """By label; also of a baseline that compiles."""
    joules = {}
    for result in comparison.results:
        if result.energy is not None and (even := result.energy.break_even) is not None:
            joules[result.label] = even.compile_seconds
            if even.further_seconds < even.compile_seconds:
                joules[comparison.baseline] = even.compile_seconds - even.further_seconds
    return joules


def _learns_sooner(comparison: Comparison, standing: Standings) -> Result | None:
    """Of the arms that are not faster, the one that surely needs the least time to the same loss,
    if less than the baseline."""
    times = [
        (time.seconds, result)
        for result in standing.counted
        if result.speed_verdict != "faster"
        and (time := time_to_loss(result, comparison.baseline_of(result.label)))
        and time.is_sooner
    ]
    return min(times, key=itemgetter(0), default=(0.0, None))[1]


def _rival(standing: Standings, totals: Mapping[str, float], best: Result) -> Result | None:
    """The backend of inconclusive speed or outcome that would take the least time, if less than
    the best."""
    rivals = [
        result
        for result in standing.counted
        if (result.speed_verdict == "unsure" or result.has_open_outcome)
        and result.speedup
        and totals.get(result.label, math.inf) < totals[best.label]
    ]
    return min(rivals, key=lambda result: totals[result.label], default=None)


def own_plan(comparison: Comparison) -> Plan:
    """The plan for the length of the experiment's own training."""
    return plan(comparison, own_steps(comparison), comparison.spec.plan.starts)


def _chosen_for(num_steps: int | None, choices: Sequence[Choice]) -> Choice | None:
    """The choice for a training of `num_steps` steps; None without a length or choices."""
    if num_steps is None:
        return None
    return next((choice for choice in reversed(choices) if choice.from_steps < num_steps), None)
