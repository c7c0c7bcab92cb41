"""Who is ahead in a race: total times at the planned length, and which differences are sure.

"Surely" holds however often the search tests (`runner/protocol/sequential_test.py`). Each round
compares the times of a block.
"""

import math
from statistics import fmean, median
from typing import NamedTuple

from breakeven.runner.loss_band import broken_limit, half_widths
from breakeven.runner.protocol.sequential_test import stake
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.supervision.racer import Racer, step_ratios

ERROR_RATE = 0.05
"""Upper bound of the probability that the best candidate is dropped."""
MIN_GAIN = 0.01
"""Smallest gain, as a share of a step, that counts: two processes of the same program differ by
about as much."""
ROUNDS_TO_JUDGE = 3
"""Rounds before the times of a candidate are judged."""
BLOCK_SECONDS = 0.5
"""After the warm-up a block of the baseline takes about as long, if it has at least
`FEWEST_STEPS`: with fewer seconds per round it is decided sooner."""
FEWEST_STEPS = 3
"""Fewest steps of a shortened block."""
LEAST_SPREAD = 0.01
"""Least standard deviation of the logarithm of a ratio: a few blocks may agree by chance."""
PROMISING = 1.3
"""Settings of another family are tried up to this multiple of the total time of the best so far."""


class Lead(NamedTuple):
    """How far ahead a run must be."""

    standard_errors: float
    """Of the mean logarithm of the ratios, beyond `gap`."""
    gap: float
    """Logarithm of a factor: two processes of the same program may differ by about as much."""
    degrees_of_freedom: int
    """Fewest of the standard deviation."""


CLEAR = Lead(standard_errors=6.0, gap=0.1, degrees_of_freedom=6)
"""A candidate so far ahead wins without the sequential test, which needs 13 rounds among 38
candidates, even if one takes a tenth of the time. Error rates of searches with both rules:
benchmarks/results/search-trials.md."""
PROBABLE = Lead(standard_errors=4.0, gap=0.05, degrees_of_freedom=4)
"""So far ahead of the baseline, a candidate is worth a confirmation."""
CONFIRMING_ERRORS = 12.0
"""A small lead is confirmed in so many rounds that it is this many standard errors: its interval
and the noise floor take two each, and two processes of one program differ."""


class Ranking:
    """The runs of a race, and who is ahead at the planned length."""

    def __init__(self, spec: ExperimentSpec, steps: int, num_tests: int) -> None:
        """`steps`: the planned length. `num_tests`: how many comparisons share the error rate."""
        self.racers: dict[str, Racer] = {}
        """All runs so far, by label."""
        self.best = "baseline"
        """Label of the best so far: at first the baseline, then each run that surely beats it."""
        self.ended: set[str] = set()
        """Candidates that are decided not to be the best."""
        self.broken: set[str] = set()
        """Candidates whose losses leave the band of equal trainings."""
        self._precision = spec.training.precision
        self._steps = steps
        self.compilings = 1
        """How often the planned training compiles for as long as in the first process."""
        self._spreads: dict[int, tuple[float, int]] = {}
        """By the last round that counts; known until the next round."""
        self._required_stake = max(2, num_tests) / ERROR_RATE

    def add(self, arm: Arm) -> None:
        """Adds a run to the race."""
        self.racers.setdefault(arm.label, Racer(arm))

    def update(self) -> None:
        """Takes the events since the last round into account."""
        self._spreads.clear()
        self._judge_losses()

    @property
    def baseline(self) -> Racer:
        return self.racers["baseline"]

    @property
    def candidates(self) -> list[Racer]:
        """The runs that the race is to decide between."""
        return [racer for racer in self.racers.values() if racer.arm.role == "backend"]

    @property
    def leading(self) -> Racer:
        """The best so far."""
        return self.racers[self.best]

    def total(self, racer: Racer) -> float | None:
        """Seconds at the planned length, from the rounds that it shares with the baseline."""
        ratios, step = step_ratios(racer, self.baseline), self.baseline.step_seconds
        if not ratios or step is None:
            return None
        return self.compilings * racer.compile_seconds + self._steps * step * median(ratios)

    def beats(
        self,
        racer: Racer,
        other: Racer,
        *,
        gain: float = MIN_GAIN,
        required_stake: float | None = None,
    ) -> bool:
        """Whether a run surely takes less time at the planned length than another, by at least
        `gain`, a share of the other's steps. `required_stake`: by default the search's, or a clear
        lead."""
        ratios, share = step_ratios(racer, other), self._share_to_win(racer, other, gain)
        if share <= 0:
            return False
        # The best with the original batch size stays until it has surely beaten the baseline.
        is_same_work = racer.arm.batch_times == other.arm.batch_times
        if required_stake is None and is_same_work and self._leads(racer, other, CLEAR, gain):
            return True
        num_below = sum(ratio < share for ratio in ratios)
        enough = self._required_stake if required_stake is None else required_stake
        return len(ratios) >= ROUNDS_TO_JUDGE and stake(num_below, len(ratios)) >= enough

    def loses(self, racer: Racer, to: Racer, gain: float = 0.0) -> bool:
        """Whether a run can no longer take less time than another, which gains `gain` at least."""
        return racer is not to and self.beats(to, racer, gain=gain)

    def are_equal(self, racer: Racer, other: Racer, width: float) -> bool:
        """Whether each of two runs surely takes at most `width` longer than the other."""
        return self.beats(racer, other, gain=-width) and self.beats(other, racer, gain=-width)

    @property
    def seconds(self) -> float:
        """Seconds of all blocks, and of starting again; compile time included."""
        racers = self.racers.values()
        timed = sum(sum(racer.blocks.values()) + racer.again_seconds for racer in racers)
        return timed + sum(seconds for racer in racers for seconds, _ in racer.compiling)

    @property
    def step_seconds(self) -> float | None:
        """Seconds of the baseline's steps, if need be of those of its warm-up."""
        return self.baseline.step_seconds or self.baseline.warm_up_step_seconds

    def block_steps(self, most: int) -> int | None:
        """Most steps of a block, so that slow steps do not make long rounds. None for `most`: also
        if steps wait for data, which loader processes deliver in bursts."""
        step = self.step_seconds
        if step is None or median(self.baseline.loading_shares or [0.0]) >= MIN_GAIN:
            return None
        return min(most, max(FEWEST_STEPS, math.ceil(BLOCK_SECONDS / step)))

    def probably_wins(self, racer: Racer) -> bool:
        """Whether a candidate is worth a confirmation. Because that decides, a stake of
        1 / `ERROR_RATE` suffices, or a probable lead."""
        baseline = self.baseline
        return self.beats(racer, baseline, required_stake=1 / ERROR_RATE) or self._leads(
            racer, baseline, PROBABLE
        )

    def is_open(self, racer: Racer) -> bool:
        """Whether further rounds may make the candidate the answer: it could take the least time,
        is not yet worth a confirmation, and has too few rounds for one, even if all agreed."""
        rounds = len(step_ratios(racer, self.baseline))
        totals = [
            total for rival in self.racers.values() if (total := self.total(rival)) is not None
        ]
        is_near = (self.total(racer) or 0.0) <= PROMISING * min(totals, default=math.inf)
        is_undecided = stake(rounds, rounds) < 1 / ERROR_RATE
        return is_near and is_undecided and not self.probably_wins(racer)

    def rounds_to_confirm(self, label: str) -> float:
        """Rounds in which a candidate's lead over the baseline, as measured so far, would be
        `CONFIRMING_ERRORS` standard errors; infinite without a lead."""
        racer = self.racers[label]
        ahead = self._ahead(racer, self.baseline)
        spread, _ = self._spread_until(max(racer.blocks, default=0))
        return (CONFIRMING_ERRORS * spread / ahead) ** 2 if ahead > 0 else math.inf

    def _share_to_win(self, racer: Racer, other: Racer, gain: float) -> float:
        """The share of the other's step below which the step of `racer` saves `gain` at the planned
        length, compile times included; 0 if that is unknown."""
        steps = self._steps * (other.step_seconds or 0.0)
        if not steps:
            return 0.0
        saved = self.compilings * (other.compile_seconds - racer.compile_seconds)
        return 1 - gain + saved / steps

    def _leads(self, racer: Racer, other: Racer, lead: Lead, gain: float = MIN_GAIN) -> bool:
        """Whether `racer` is so far ahead of `other` at the planned length. The standard deviation
        is that of all ratios to the baselines around the mean of their run, because a run alone has
        too few, up to the last round of `racer`: another run may change its pace later."""
        rounds = len(step_ratios(racer, other))
        spread, degrees_of_freedom = self._spread_until(max(racer.blocks, default=0))
        if rounds < 2 or degrees_of_freedom < lead.degrees_of_freedom:
            return False
        needed = lead.gap + lead.standard_errors * spread / math.sqrt(rounds)
        return self._ahead(racer, other, gain) > needed

    def _ahead(self, racer: Racer, other: Racer, gain: float = MIN_GAIN) -> float:
        """Mean logarithm of the factor by which the steps of `racer` may still grow before it takes
        longer than `other` at the planned length; minus infinity if unknown."""
        ratios, share = step_ratios(racer, other), self._share_to_win(racer, other, gain)
        if not ratios or share <= 0:
            return -math.inf
        return math.log(share) - fmean(map(math.log, ratios))

    def _spread_until(self, last: int) -> tuple[float, int]:
        """Standard deviation of the logarithm of step time over the baseline's in the rounds up to
        `last`, and its degrees of freedom."""
        if last in self._spreads:
            return self._spreads[last]
        squares, degrees_of_freedom = 0.0, 0
        for racer in self.racers.values():
            ratios = step_ratios(racer, self.baseline, last)
            if racer.arm.role != "baseline" and len(ratios) > 1:
                logarithms = [math.log(ratio) for ratio in ratios]
                mean = fmean(logarithms)
                squares += math.fsum((value - mean) ** 2 for value in logarithms)
                degrees_of_freedom += len(ratios) - 1
        spread = max(LEAST_SPREAD, math.sqrt(squares / max(1, degrees_of_freedom)))
        return self._spreads.setdefault(last, (spread, degrees_of_freedom))

    def _judge_losses(self) -> None:
        """Marks candidates whose losses leave the band of equal trainings by more than rounding."""
        precision = self.baseline.precision or self._precision
        equals = [run.losses for run in self.racers.values() if run.arm.role != "backend"]
        if len(equals) < 2:
            return
        band = half_widths(equals[0], equals[1:], precision)
        limit = broken_limit(precision, len(equals) - 1)
        are_finite = all(math.isfinite(loss) for losses in equals for loss in losses.values())
        for racer in self.candidates:
            if racer.label in self.broken:
                continue
            diverges = are_finite and not all(map(math.isfinite, racer.losses.values()))
            # Losses of larger batches are those of another training.
            judged = racer.losses if racer.arm.batch_times == 1 else {}
            if diverges or any(
                abs(loss - equals[0][step]) > limit * band[step]
                for step, loss in judged.items()
                if step in band
            ):
                self.broken.add(racer.label)
