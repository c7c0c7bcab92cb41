"""The race of a search: decides from times and losses of the runs which candidates to try, which to
end, and which one is the best.

The race begins with the baseline. Candidates that differ from the best so far in one setting take
turns with it. A candidate ends as soon as it surely loses at the planned length, compile time
included, or its losses leave the band of equal trainings, or `MAX_ROUNDS` rounds do not show that
it gains `MIN_GAIN`. A candidate that surely wins becomes the best so far, and its neighbours are
tried next: so settings that gain are combined, and their combination is measured.

"Surely" holds however often the search tests. Each round compares the times of a block. If the
median ratio of a candidate to the best is at most r, its ratio exceeds r in at most half of the
rounds, and a bet on "above r" multiplies its stake by 1 or less on average. So the stake reaches
1/a with probability at most a, in any number of rounds (Ville 1939; bets mixed evenly over all
odds: Robbins 1970).
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import itemgetter
from statistics import fmean, median, variance
from typing import Any, NamedTuple, get_args

from breakeven.runner.loss_band import broken_from, half_widths
from breakeven.runner.specs.candidates import (
    MOVES,
    Shares,
    difference,
    potential,
    presumed,
    usual_compile_seconds,
)
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.training import Precision
from breakeven.runner.specs.variants import NEED_NO_COMPILER, Variant
from breakeven.runner.supervision.stopping_rule import Ending

ERROR_RATE = 0.05
"""Upper bound of the probability that the best candidate is dropped."""
MAX_ROUNDS = 60
"""Rounds after which a candidate ends that has neither won nor lost."""
MIN_GAIN = 0.01
"""Smallest gain, as a share of a step, that counts: two processes of the same program differ by
about as much."""
PROMISING = 1.3
"""Settings of another family are tried up to this multiple of the total time of the best so far."""
LONG_WAIT = 0.2
"""Share of a step in which the device waits, from which CUDA graphs are tried first. In three grids
with such steps, all 18 candidates were faster with them (benchmarks/results/searches.md)."""
LARGEST_LEAP = 4
"""Largest factor between the batch sizes of two neighbours."""
PLAIN_MODES = (None, "reduce-overhead")
"""The usual mode of each family: without CUDA graphs and with them."""
MIN_ROUNDS = 3
"""Rounds before the times of a candidate are judged."""
LEAST_SPREAD = 0.01
"""Least standard deviation of the logarithm of a ratio: a few blocks may agree by chance."""
BLOCK_SECONDS = 0.5
"""After the warm-up a block of the baseline takes about as long, if it has at least
`FEWEST_STEPS`: with fewer seconds per round a search decides sooner."""
FEWEST_STEPS = 3
"""Fewest steps of a shortened block."""
CPUS_PER_COMPILER = 2
"""CPUs for each candidate that compiles, from four CPUs on. On 16 CPUs three BERT-base compiled at
once in 60 s, and one alone in 59 to 68 s; on two CPUs two bert-tiny at once took 6 to 13 % longer
than alone (benchmarks/results/searches.md)."""
LARGEST_GROUP = 8
"""Largest number of candidates that compile together, and then take turns."""
USABLE_MEMORY = 0.9
"""Share of the device's memory that all runs together may take."""
PROCESS_BYTES = 2**30
"""Memory of a device that a process takes besides its tensors."""
OVERTIME = 0.25
"""Time after the budget in which compiled candidates may be decided, as a share of the budget."""


class Lead(NamedTuple):
    """How far ahead a run must be."""

    errors: float
    """Standard errors of the mean logarithm of the ratios, beyond `gap`."""
    gap: float
    """Logarithm of a factor: two processes of the same program may differ by about as much."""
    freedom: int
    """Fewest degrees of freedom of the standard deviation."""


CLEAR = Lead(errors=6.0, gap=0.1, freedom=6)
"""A candidate so far ahead wins without the sequential test, which needs 13 rounds among 38
candidates, even if one takes a tenth of the time. Error rates of searches with both rules:
benchmarks/results/search-trials.md."""
PROBABLE = Lead(errors=4.0, gap=0.05, freedom=4)
"""So far ahead of the baseline, a candidate is worth a confirmation."""


@dataclass
class Racer:
    """The times and losses in the journal of a run."""

    variant: Variant
    blocks: dict[int, float] = field(default_factory=dict)
    """Seconds of the blocks that count, by round."""
    steps: dict[int, int] = field(default_factory=dict)
    """Steps of these blocks. A step of a larger batch counts as several of the baseline's."""
    loading: list[float] = field(default_factory=list)
    """Share of each of these blocks in which a script waited for its data loaders."""
    warm_up_step_seconds: float | None = None
    """Seconds per step of the last block that does not count, but in which nothing compiled."""
    has_trained: bool = False
    """Whether it has completed a block, of any kind."""
    has_failed: bool = False
    compiling: list[tuple[float, int]] = field(default_factory=list)
    """Seconds and steps of the blocks in which something compiled."""
    losses: dict[int, float] = field(default_factory=dict)
    precision: Precision | None = None
    """Precision that the run of a script observed."""
    fixed: frozenset[str] = frozenset()
    """Settings that no candidate can change, because the script chooses them."""
    memory_bytes: int = 0
    """Largest memory of the device that PyTorch held for a block."""
    device_bytes: int | None = None
    """Memory of its GPU."""

    @property
    def label(self) -> str:
        return self.variant.label

    @property
    def place(self) -> int:
        """Number of its device, if the search is spread over several, from 1."""
        return self.variant.place

    @property
    def step_seconds(self) -> float | None:
        """Median seconds per step of its blocks; None before the first block that counts."""
        times = [seconds / self.steps[number] for number, seconds in self.blocks.items()]
        return median(times) if times else None

    @property
    def compile_seconds(self) -> float:
        """Seconds that blocks with compilation took longer than their steps take now."""
        step = self.step_seconds or 0.0
        return sum(max(0.0, seconds - steps * step) for seconds, steps in self.compiling)

    def take(self, event: Mapping[str, Any]) -> None:
        """Records an event; raises `KeyError`, `TypeError` or `ValueError` for wrong values."""
        if event["kind"] == "step" and event.get("loss") is not None:
            self.losses[int(event["step"])] = float(event["loss"])
        elif event["kind"] == "workload":
            self.fixed = frozenset(event.get("fixed_settings") or ())
            if event.get("precision") in get_args(Precision):
                self.precision = event["precision"]
        elif event["kind"] == "environment":
            self.device_bytes = event.get("gpu_memory_bytes")
        elif event["kind"] == "block":
            self._take_block(event)
        elif event["kind"] == "error":
            self.has_failed = True

    def _take_block(self, event: Mapping[str, Any]) -> None:
        seconds = float(event["seconds"])
        steps = int(event["num_steps"]) * self.variant.batch_times
        if not (0 < seconds < math.inf and steps > 0):
            return
        self.has_trained = True
        self.memory_bytes = max(self.memory_bytes, event.get("reserved_memory_bytes") or 0)
        if event["compiled"]:
            self.compiling.append((seconds, steps))
        elif event.get("warm_up"):
            self.warm_up_step_seconds = seconds / steps
        else:
            self.blocks[int(event["round"])] = seconds
            self.steps[int(event["round"])] = steps
            if event.get("loading_seconds") is not None:
                self.loading.append(min(1.0, float(event["loading_seconds"]) / seconds))


class Family(NamedTuple):
    """A compiler or none, with or without CUDA graphs. All families are neighbours of each other: a
    training that waits for the host may gain from CUDA graphs alone."""

    compiler: str | None
    replays_graphs: bool
    """Whether it replays its steps as CUDA graphs."""


class NoGain(NamedTuple):
    """A setting that brought no gain in a family."""

    family: Family
    change: Mapping[str, object]
    """The tried values, by the name of the setting."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The decision after a round."""

    dropped: Mapping[str, Ending] = field(default_factory=dict)
    """Candidates that end with their next turn, by label."""
    joining: tuple[Variant, ...] = ()
    """Candidates that join the race."""
    over: Ending | None = None
    """Why the search ends; None if it continues."""

    best: str = "baseline"
    """Label of the best run so far."""
    block_steps: int | None = None
    """Most steps of the blocks after the next turns; None for those of the experiment. All runs of
    a round have the same, because only blocks of equally many steps are compared later."""

    def ending(self, label: str) -> Ending | None:
        """Why a run ends with its next turn; None if it continues."""
        found = self.dropped.get(label, self.over)
        is_profiled = found is self.over and label in ("baseline", self.best)
        return found and replace(found, is_profiled=is_profiled)


class Race:
    """Decides after each round from the journals of all runs."""

    def __init__(self, spec: ExperimentSpec, compiling_at_once: int = 1) -> None:
        """`compiling_at_once`: how many candidates may compile at the same time."""
        self._spec, self._plan = spec, spec.tune
        self._group = compiling_at_once if spec.compile == "together" else 1
        self._racers: dict[str, Racer] = {}
        self._ended: set[str] = set()
        """Candidates that are decided not to be the best."""
        self._broken: set[str] = set()
        """Candidates whose losses leave the band of equal trainings."""
        self._without_gain: list[NoGain] = []
        self._utilizations: list[float] = []
        """Of the device, in the blocks before the first candidate's."""
        self._origins: dict[str, Variant] = {}
        """The variant that a candidate was derived from, by the candidate's label."""
        self._baselines = {one.place: one.label for one in spec.variants if one.role == "baseline"}
        """Label of each device's baseline."""
        self._best = "baseline"
        self._spreads: dict[int, tuple[float, int]] = {}
        """By the last round that counts; known until the next round."""
        self._presumed = presumed(spec)
        self._bound = max(2, len(spec.candidates)) / ERROR_RATE

    def add(self, variant: Variant) -> None:
        """Adds a run to the race."""
        self._racers.setdefault(variant.label, Racer(variant))

    def take(self, label: str, event: Mapping[str, Any]) -> None:
        """Records an event of a run."""
        self._racers[label].take(event)
        utilization = event.get("utilization")
        if utilization is not None and "round" in event and not self._has_candidates:
            self._utilizations.append(float(utilization))

    @property
    def best(self) -> str:
        """Label of the best so far: at first the baseline, then each run that surely beats it."""
        return self._best

    @property
    def baseline_step_seconds(self) -> float | None:
        """Median seconds per step; None before its first block that counts."""
        return self._racers["baseline"].step_seconds

    @property
    def block_steps(self) -> int | None:
        """Most steps of a block, so that slow steps do not make long rounds. None for those of the
        experiment: also if steps wait for data, which loader processes deliver in bursts."""
        baseline = self._racers["baseline"]
        step = baseline.step_seconds or baseline.warm_up_step_seconds
        if step is None or median(baseline.loading or [0.0]) >= MIN_GAIN:
            return None
        return min(self._spec.block_steps, max(FEWEST_STEPS, math.ceil(BLOCK_SECONDS / step)))

    @property
    def seconds(self) -> float:
        """Seconds of all blocks, compile time included."""
        racers = self._racers.values()
        timed = sum(sum(one.blocks.values()) for one in racers)
        return timed + sum(seconds for one in racers for seconds, _ in one.compiling)

    def decide(self, living: Collection[str], elapsed: float, place: int = 1) -> Decision:
        """The decision after a round. `living`: labels of runs that continue, on all devices.
        `elapsed`: seconds since the start. `place`: the device whose runs have had a round; only
        this device gets new candidates."""
        if not {*self._baselines.values()} <= {*living}:
            return Decision(over=self._ending("nothing_left"))
        self._forget_dead(living)
        self._judge_losses()
        self._spreads.clear()
        dropped = self._drop_wrong_best()
        for racer in self._racing(living):
            ending = self._why_dropped(racer)
            if ending is not None:
                dropped[racer.label] = ending
                self._end(racer)
            elif self._beats(racer, self._racers[self._best]):
                dropped |= self._make_best(racer)
        racing, budget = self._racing(living), self._plan.max_seconds
        if elapsed >= budget:
            is_over = elapsed >= (1 + OVERTIME) * budget or not any(map(self._is_open, racing))
            over = self._ending("seconds", budget) if is_over else None
            return Decision(dropped=dropped, over=over)
        if self.baseline_step_seconds is None:  # Needed to know which candidates have lost.
            return Decision(dropped=dropped)
        here, at_once = [one for one in racing if one.place == place], self._at_once
        free = max(0, at_once - len(here))
        # Candidates that compile together join together, after those before them are timed.
        are_timed = all(len(_step_ratios(one, self._baseline_of(one))) > 1 for one in here)
        if self._group > 1 and here and (free < at_once / 2 or not are_timed):
            free = 0
        waiting = self._untried(budget - elapsed) if free else []
        if not racing and not waiting:
            is_cut = bool(self._untried())
            over = self._ending("seconds", budget) if is_cut else self._ending("searched")
            return Decision(dropped=dropped, over=over)
        # Devices without a candidate get equal parts of those that wait.
        idle = {*range(1, self._spec.num_places + 1)} - {one.place for one in racing}
        return Decision(dropped=dropped, joining=tuple(waiting[:: max(1, len(idle))][:free]))

    def _baseline_of(self, racer: Racer) -> Racer:
        """The baseline on the same device."""
        return self._racers[self._baselines[racer.place]]

    @property
    def _at_once(self) -> int:
        """How many candidates may race at once on a device, beside the baseline, its controls and
        the best."""
        wanted = max(self._plan.at_once, min(self._group, LARGEST_GROUP))
        baseline = self._racers["baseline"]
        if baseline.device_bytes is None:
            return wanted
        each = baseline.memory_bytes + PROCESS_BYTES
        fits = int(USABLE_MEMORY * baseline.device_bytes / each)
        others = 1 + self._spec.controls + (self._best != "baseline")
        return max(1, min(wanted, fits - others))

    @property
    def _has_candidates(self) -> bool:
        """Whether a candidate has trained."""
        racers = self._racers.values()
        return any(one.variant.role == "backend" and one.has_trained for one in racers)

    def _shortest_compilation(self, variant: Variant) -> float:
        """Shortest compile time of the candidates so far with the same compiler, in seconds; 0
        before the first."""
        found = [one.compile_seconds for one in self._racers.values()
                 if one.blocks and one.variant.backend == variant.backend]  # fmt: skip
        return min(found, default=0.0)

    def is_compiling(self, label: str) -> bool:
        """Whether the run is a candidate before the end of its first block."""
        racer = self._racers[label]
        return racer.variant.role == "backend" and not racer.has_trained

    def most_compile_seconds(self) -> float | None:
        """Longest compile time of a candidate: beyond it, even steps of 0 s would lose. None before
        the best so far is timed."""
        best = self._racers[self._best]
        return self._total(best)

    def finalists(self) -> tuple[Variant, ...]:
        """The candidates to confirm: the one with the least total time, and the best of another
        family or batch size, or else the second best. Another family seldom has the same fault, if
        the best turns out to train wrongly. With larger batches there are three, and one of them
        has the original batch size. All probably beat the baseline. Then the combination from
        `_combined`."""
        self._judge_losses()
        self._spreads.clear()
        found = [one for one in self._racers.values() if one.variant.role == "backend"
                 and one.label not in self._broken and self._probably_wins(one)]  # fmt: skip
        ranked = sorted(found, key=lambda one: self._total(one) or math.inf)
        same = [one for one in ranked if one.variant.batch_times == 1]
        most = 2 if len(same) == len(ranked) else 3
        kinds = {(family_of(one.variant), one.variant.batch_times): one for one in reversed(ranked)}
        chosen = [one for one in ranked if one in kinds.values()][:most]
        if len(chosen) == 1:
            chosen = ranked[:2]
        if same and same[0] not in chosen:
            chosen[most - 1 :] = same[:1]
        return (*(one.variant for one in chosen), *(self._combined(ranked) if ranked else ()))

    def _combined(self, winners: Sequence[Racer]) -> Iterator[Variant]:
        """The untimed candidate that adds to the best the settings that won without a compiler,
        such as `optimizer=fused`. The search may have had no time to try them with the best."""
        baseline, best = self._racers["baseline"].variant, winners[0].variant
        chosen = {"batch_times", *difference(best, baseline)}
        added: dict[str, object] = {}
        for one in reversed(winners):
            gain = difference(one.variant, baseline)
            if len(gain) == 1 and gain.keys() <= {*NEED_NO_COMPILER} - chosen:
                added |= gain
        for variant in self._spec.candidates:
            racer = self._racers.get(variant.label)
            is_open = racer is None or not (racer.blocks or racer.has_failed)
            if added and is_open and difference(variant, best) == added:
                yield variant

    def _racing(self, living: Collection[str]) -> list[Racer]:
        """The living candidates that are neither the best nor decided."""
        decided = {self._best, *self._ended}
        return [one for label, one in self._racers.items() if one.variant.role == "backend"
                and label in living and label not in decided]  # fmt: skip

    def _probably_wins(self, racer: Racer) -> bool:
        """Whether a candidate is worth a confirmation. Because that decides, a stake of
        1 / `ERROR_RATE` suffices, or a probable lead."""
        baseline = self._racers["baseline"]
        return self._beats(racer, baseline, bound=1 / ERROR_RATE) or self._leads(
            racer, baseline, PROBABLE
        )

    def _is_open(self, racer: Racer) -> bool:
        """Whether further rounds may make the candidate the answer: it could take the least time,
        is not yet worth a confirmation, and has too few rounds for one, even if all agreed."""
        rounds = len(_step_ratios(racer, self._baseline_of(racer)))
        totals = [total for one in self._racers.values() if (total := self._total(one)) is not None]
        is_near = (self._total(racer) or 0.0) <= PROMISING * min(totals, default=math.inf)
        is_undecided = stake(rounds, rounds) < 1 / ERROR_RATE
        return is_near and is_undecided and not self._probably_wins(racer)

    def _forget_dead(self, living: Collection[str]) -> None:
        """Ends candidates that failed; the baseline replaces a best so far that failed."""
        if self._best not in living:
            self._best = "baseline"
        for label, racer in self._racers.items():
            if racer.variant.role == "backend" and label not in {*living, *self._ended}:
                self._end(racer)

    def _end(self, racer: Racer) -> None:
        """Ends a candidate. If it is not faster than its origin either, its setting is recorded as
        one without gain."""
        self._ended.add(racer.label)
        origin = self._origins.get(racer.label)
        if origin is None or origin.label not in self._racers:  # its origin was never tried
            return
        before, now = self._total(self._racers[origin.label]), self._total(racer)
        if racer.label in self._broken or now is None or before is None or now >= before:
            presumptions = self._presumptions() if racer.variant.backend else {}
            change = difference(racer.variant, replace(origin, **presumptions))
            self._without_gain.append(NoGain(family_of(racer.variant), change))

    def _make_best(self, racer: Racer) -> dict[str, Ending]:
        """Makes a candidate the best so far, and ends the former one, which has lost."""
        before, self._best = self._best, racer.label
        if before == "baseline":  # stays: all speedups refer to it
            return {}
        self._end(self._racers[before])
        return {before: self._ending("loses", self._plan.steps, racer.label)}

    def _why_dropped(self, racer: Racer) -> Ending | None:
        best = self._racers[self._best]
        if racer.label in self._broken:
            return self._ending("wrong")
        if self._beats(best, racer, gain=0.0):
            return self._ending("loses", self._plan.steps, best.label)
        if len(self._ratios(racer, best)) >= MAX_ROUNDS:
            return self._ending("equal", MAX_ROUNDS, best.label)
        return None

    def _beats(
        self, one: Racer, other: Racer, *, gain: float = MIN_GAIN, bound: float | None = None
    ) -> bool:
        """Whether a run surely takes less time at the planned length than another, by at least
        `gain`, a share of the other's steps. `bound`: required stake; default: the search's, or a
        clear lead."""
        ratios, share = self._ratios(one, other), self._share_to_win(one, other, gain)
        if share <= 0:
            return False
        # The best with the original batch size stays until it has surely beaten the baseline.
        is_same_work = one.variant.batch_times == other.variant.batch_times
        if bound is None and is_same_work and self._leads(one, other, CLEAR, gain):
            return True
        below = sum(ratio < share for ratio in ratios)
        enough = self._bound if bound is None else bound
        return len(ratios) >= MIN_ROUNDS and stake(below, len(ratios)) >= enough

    def _share_to_win(self, one: Racer, other: Racer, gain: float) -> float:
        """The share of the other's step below which the step of `one` saves `gain` at the planned
        length, compile times included; 0 if that is unknown."""
        steps = self._plan.steps * (other.step_seconds or 0.0)
        if not steps:
            return 0.0
        return 1 - gain + (other.compile_seconds - one.compile_seconds) / steps

    def _leads(self, one: Racer, other: Racer, lead: Lead, gain: float = MIN_GAIN) -> bool:
        """Whether `one` is so far ahead of `other` at the planned length. The standard deviation is
        that of all ratios to the baselines around the mean of their run, because a run alone has
        too few, up to the last round of `one`: another run may change its pace later."""
        ratios, share = self._ratios(one, other), self._share_to_win(one, other, gain)
        spread, freedom = self._spread_until(max(one.blocks, default=0))
        if len(ratios) < 2 or share <= 0 or freedom < lead.freedom:
            return False
        if one.place != other.place and other.variant.role != "baseline":
            spread *= math.sqrt(2)  # Both have been divided by a baseline.
        ahead = math.log(share) - fmean(map(math.log, ratios))
        return ahead > lead.gap + lead.errors * spread / math.sqrt(len(ratios))

    def _spread_until(self, last: int) -> tuple[float, int]:
        """Standard deviation of the logarithm of step time over the baseline's in the rounds up to
        `last`, and its degrees of freedom."""
        if last in self._spreads:
            return self._spreads[last]
        squares, freedom = 0.0, 0
        for one in self._racers.values():
            ratios = _step_ratios(one, self._baseline_of(one), last)
            if one.variant.role != "baseline" and len(ratios) > 1:
                logarithms = [math.log(ratio) for ratio in ratios]
                squares += variance(logarithms) * (len(ratios) - 1)
                freedom += len(ratios) - 1
        found = max(LEAST_SPREAD, math.sqrt(squares / max(1, freedom))), freedom
        return self._spreads.setdefault(last, found)

    def _ratios(self, one: Racer, other: Racer) -> list[float]:
        """Ratios of their step times in the rounds of both. Runs on two devices share no round, so
        each is divided by the baseline on its device, and the first rounds of both belong together,
        then the second ones."""
        if one.place == other.place:
            return _step_ratios(one, other)
        mine, its = (_step_ratios(racer, self._baseline_of(racer)) for racer in (one, other))
        if other.variant.role == "baseline":
            return mine
        return [ratio / other for ratio, other in zip(mine, its, strict=False)]

    def _judge_losses(self) -> None:
        """Marks candidates whose losses leave the band of equal trainings by more than rounding."""
        precision = self._racers["baseline"].precision or self._spec.training.precision
        equals = [one.losses for one in self._racers.values() if one.variant.role != "backend"]
        if len(equals) < 2:
            return
        band = half_widths(equals[0], equals[1:], precision)
        limit = broken_from(precision, len(equals) - 1)
        are_finite = all(math.isfinite(loss) for losses in equals for loss in losses.values())
        for label, racer in self._racers.items():
            if racer.variant.role != "backend" or label in self._broken:
                continue
            diverges = are_finite and not all(map(math.isfinite, racer.losses.values()))
            # Losses of larger batches are those of another training.
            judged = racer.losses if racer.variant.batch_times == 1 else {}
            if diverges or any(abs(loss - equals[0][step]) > limit * band[step]
                               for step, loss in judged.items() if step in band):  # fmt: skip
                self._broken.add(label)

    def _drop_wrong_best(self) -> dict[str, Ending]:
        """Ends the best so far if its losses have left the band; the baseline takes its place."""
        if self._best not in self._broken:
            return {}
        before, self._best = self._best, "baseline"
        self._end(self._racers[before])
        return {before: self._ending("wrong")}

    def _total(self, racer: Racer) -> float | None:
        """Seconds at the planned length, from the rounds that it shares with the baseline."""
        ratios, step = _step_ratios(racer, self._baseline_of(racer)), self.baseline_step_seconds
        if not ratios or step is None:
            return None
        return racer.compile_seconds + self._plan.steps * step * median(ratios)

    def _untried(self, seconds: float = math.inf) -> list[Variant]:
        """Untried neighbours of the best so far, or else of the best of another family; without
        candidates that cannot compile in `seconds`.

        If candidates compile together, a full group costs little more time than one candidate. Then
        neighbours of all families' best join, and neighbours of candidates that are not timed yet
        fill the group. Neighbours that could gain less than half as much as another wait for a
        later group, because this one would wait for their compilation."""
        found: dict[str, tuple[bool, float, Variant]] = {}
        later: list[Variant] = []
        origins = [*self._bases(), *self._untimed]
        while origins and not (found and self._group == 1):
            origin = origins.pop(0)
            racer = self._racers.get(origin.label)
            is_ahead = racer is None or not racer.blocks
            for gain, variant in self._neighbours(origin):
                if self._shortest_compilation(variant) > seconds:
                    continue
                if is_ahead and variant.autotunes:
                    continue  # It compiles alone.
                place = (is_ahead, -gain, variant)
                if variant.label in found and found[variant.label][:2] <= place[:2]:
                    continue
                self._origins[variant.label] = origin
                if self._comes_after_its_twin(variant):
                    later.append(variant)
                    continue
                found[variant.label] = place
                if self._group > 1 and not is_ahead:
                    origins.append(variant)
        most = -min((negative for _, negative, _ in found.values()), default=0.0)
        ordered = sorted(found.values(), key=itemgetter(0, 1))
        return [variant for _, negative, variant in ordered
                if most <= 0 or -negative >= most / 2] or later  # fmt: skip

    def _comes_after_its_twin(self, variant: Variant) -> bool:
        """Whether steps wait so long that the same candidate with CUDA graphs is tried first."""
        if self._shares(self._racers["baseline"]).waiting < LONG_WAIT:
            return False
        twins = [self._racers.get(other.label) for other in self._spec.candidates
                 if difference(other, variant) == {"mode": "reduce-overhead"}]  # fmt: skip
        return any(one is None or not (one.blocks or one.label in self._ended) for one in twins)

    @property
    def _untimed(self) -> list[Variant]:
        """Candidates of a group on another device, from which further ones derive meanwhile."""
        if self._group == 1:
            return []
        return [one.variant for one in self._racers.values() if one.variant.role == "backend"
                and not one.blocks and one.label not in self._ended]  # fmt: skip

    def _bases(self) -> list[Variant]:
        """A candidate that is about to become the best, the best so far, and the best of each other
        family up to `PROMISING` times its total."""
        best = self._racers[self._best]
        limit = PROMISING * (self._total(best) or math.inf)
        leaders: dict[Family, tuple[float, Variant]] = {}
        for racer in self._racers.values():
            total = self._total(racer)
            family = family_of(racer.variant)
            if total is None or total > limit or racer.label in self._broken:
                continue
            if racer.variant.role != "control" and family != family_of(best.variant):
                former = leaders.get(family)
                if former is None or total < former[0]:
                    leaders[family] = (total, racer.variant)
        ranked = sorted(leaders.values(), key=itemgetter(0))
        return [*self._leader, best.variant, *(variant for _, variant in ranked)]

    @property
    def _leader(self) -> Iterator[Variant]:
        """The candidate of the best one's family with the least total so far, if it is not surely
        the best yet, but ahead by the factor `PROMISING`."""
        best = self._racers[self._best]
        totals = {label: total for label, one in self._racers.items()
                  if one.variant.role == "backend" and label not in {*self._broken, *self._ended}
                  and family_of(one.variant) == family_of(best.variant)
                  and len(_step_ratios(one, self._baseline_of(one))) >= MIN_ROUNDS
                  and (total := self._total(one)) is not None}  # fmt: skip
        first = min(totals, key=totals.__getitem__, default=self._best)
        if PROMISING * totals.get(first, math.inf) < (self._total(best) or math.inf):
            yield self._racers[first].variant

    def _neighbours(self, origin: Variant) -> list[tuple[float, Variant]]:
        """Untried neighbours of a variant that could gain, each with its possible gain less its
        compile time, the largest first. Ties go to the larger gain, then to CUDA graphs if steps
        wait, then to families, then to the order of `MOVES`. A setting that brought no gain in a
        family is not tried again in that family."""
        shares = self._shares(self._racers.get(origin.label) or Racer(origin))
        found, fixed = [], self._racers["baseline"].fixed
        presumptions = self._presumptions()
        compiled = replace(origin, **presumptions)
        for variant in self._spec.candidates:
            if variant.backend and not presumptions.items() <= variant.settings.items():
                continue
            # A compiler comes together with the presumed settings.
            base = compiled if variant.backend else origin
            change = difference(variant, base)
            gain = potential(variant, base, shares)
            if (
                variant.label not in self._racers
                and gain >= MIN_GAIN
                and fixed.isdisjoint(change)
                and _are_neighbours(variant, base, change)
                and NoGain(family_of(variant), change) not in self._without_gain
            ):
                starts_graphs = variant.captures_cuda_graphs > origin.captures_cuda_graphs
                saved = round(shares.waiting, 1) if starts_graphs else 0.0
                net_gain = self._net_gain(variant, gain)
                found.append((-net_gain, -gain, -saved, _rank(change), variant))
        ordered = sorted(found, key=itemgetter(0, 1, 2, 3))
        return [(-negative, variant) for negative, *_, variant in ordered]

    def _presumptions(self) -> dict[str, Any]:
        """The settings that all candidates with a compiler have, until the candidate that has only
        these settings fails or is slower than the baseline."""
        baseline, alone = self._racers["baseline"], self._presumed
        if alone is None:
            return {}
        settings = difference(alone, baseline.variant)
        is_refuted = not baseline.fixed.isdisjoint(settings)
        if alone.label in self._ended:
            total, usual = self._total(self._racers[alone.label]), self._total(baseline)
            is_refuted |= total is None or usual is None or total >= usual
        return {} if is_refuted else settings

    def _net_gain(self, variant: Variant, gain: float) -> float:
        """`gain` less the usual compile time, as a share of the baseline's whole training. Rounded
        to tenths, because gain and compile time are guesses."""
        step = self.baseline_step_seconds
        total = math.inf if step is None else self._plan.steps * step
        return round(gain - self._pace * usual_compile_seconds(variant) / total, 1)

    @property
    def _pace(self) -> float:
        """Compile times so far as a multiple of the usual ones; 1 before the first."""
        found = [one.compile_seconds / usual for one in self._racers.values()
                 if one.blocks and (usual := usual_compile_seconds(one.variant))]  # fmt: skip
        return median(found or [1.0])

    def _shares(self, racer: Racer) -> Shares:
        """Shares of a training's time under this run. Under a compiler, a step without CUDA graphs
        waits for about as large a share as the baseline's."""
        total = self._total(racer)
        loading = median(racer.loading or self._racers["baseline"].loading or [0.0])
        shares = Shares(
            compiling=racer.compile_seconds / total if total else 1.0, loading=loading,
            working=1 - loading, waiting=1 - loading,
        )  # fmt: skip
        if not self._utilizations:
            return shares
        working = min(1.0, median(self._utilizations))
        return replace(shares, working=working, waiting=min(1 - working, 1 - loading),
                       loading=min(loading, 1 - working))  # fmt: skip

    def _ending(self, cause: Any, budget: float | None = None, to: str | None = None) -> Ending:
        return Ending(cause=cause, target_width=self._spec.speed.target_width, budget=budget, to=to)


def family_of(variant: Variant) -> Family:
    return Family(variant.backend, variant.captures_cuda_graphs)


def _are_neighbours(one: Variant, other: Variant, change: Mapping[str, object]) -> bool:
    """Whether two variants differ in one setting, or only in their family. A larger batch is tried
    once a batch of a quarter of its size has won."""
    if one.batch_times > LARGEST_LEAP * other.batch_times:
        return False
    is_family = change.keys() <= {"backend", "mode"} and one.mode in PLAIN_MODES
    return len(change) == 1 or (is_family and family_of(one) != family_of(other))


def _shared(one: Racer, other: Racer) -> list[int]:
    """Rounds in which both runs have a block that counts."""
    return sorted(one.blocks.keys() & other.blocks.keys())


def _step_ratios(one: Racer, other: Racer, last: float = math.inf) -> list[float]:
    """Ratio of their step times in each round that they share, up to the round `last`."""
    return [
        one.blocks[number] / one.steps[number] * other.steps[number] / other.blocks[number]
        for number in _shared(one, other)
        if number <= last
    ]


def _rank(change: Mapping[str, object]) -> int:
    names = ["backend", *(move.name for move in MOVES)]
    return min((names.index(name) for name in change if name in names), default=len(names))


@cache
def stake(wins: int, rounds: int) -> float:
    """The current stake of bets on winning that began with 1, mixed evenly over all odds above
    even: twice the integral of (2p)^wins (2 (1 - p))^losses over p from 1/2 to 1. This incomplete
    beta function is a sum of binomial coefficients."""
    tail = sum(math.comb(rounds + 1, k) for k in range(wins + 1))
    return tail / ((rounds + 1) * math.comb(rounds, wins))
