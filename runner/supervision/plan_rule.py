"""Decides after each round of a planned training whether more rounds are needed.

A run ends as soon as it surely takes longer than the best one for the planned steps, compiling
included, as in a search. All end once each of the others surely takes longer or is practically
equal, or the budget is spent. What counts as faster or equal is what the comparison later counts:
beyond, or within, the noise floor that the controls show. Where the planned training has several
starts, it is decided for both extremes: later ones that compile nothing, and those that compile for
as long as the first one. What they take is timed afterwards.
"""

from collections.abc import Collection, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any

from breakeven.runner.experiments.continuing import why_no_rounds
from breakeven.runner.protocol.endings import Cause, Ending
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.scenario_fields import MIN_ROUNDS, PlanSpec
from breakeven.runner.supervision.decision import Decision
from breakeven.runner.supervision.racer import Racer, step_ratios
from breakeven.runner.supervision.ranking import MIN_GAIN, Ranking
from breakeven.runner.supervision.stopping_rule import JournalTails, interval_of_median

ROUNDS_TO_DECIDE = 10
"""Fewest rounds of a decision: with as many the comparison has an interval and a p-value that
suffice among 25 backends."""
MAX_FLOOR_OF_EQUAL = 0.05
"""With a noise floor above this nothing counts as equal, as in the comparison."""
SOON_SECONDS = 60.0
"""A training of which less is left goes on to its end."""
USUAL_BUDGET = 3.0
"""The budget as a multiple of compiling and one training of all runs."""
LEAST_BUDGET, MOST_BUDGET = 120.0, 900.0
"""Seconds."""


class PlanWatch:
    """Feeds a rule with the journals of the runs of an experiment."""

    def __init__(
        self, spec: ExperimentSpec, runs: Mapping[RunDir, Arm], further: PlanSpec | None = None
    ) -> None:
        """`runs`: includes the ended runs of a resumed experiment. `further`: the plan by which
        finished runs are timed further, whose budget is for what follows."""
        self._rule = PlanRule(spec if further is None else replace(spec, plan=further))
        self._tails = JournalTails()
        self._labels = {run: arm.label for run, arm in runs.items() if arm in spec.arms}
        if further is not None:
            self._read()
            self._rule.training_is_over()

    def decide(self, living: Sequence[str]) -> Decision:
        """The decision from the rounds so far."""
        self._read()
        return self._rule.decide(living)

    def _read(self) -> None:
        for run, label in self._labels.items():
            for event in self._tails.read(run):
                # Damaged events are ignored.
                with suppress(KeyError, TypeError, ValueError):
                    self._rule.take(label, event)


class PlanRule:
    """Decides after each round from the journals of all runs."""

    def __init__(self, spec: ExperimentSpec) -> None:
        assert spec.plan.steps is not None
        self._spec, self._plan, self._steps = spec, spec.plan, spec.plan.steps
        backends = [arm for arm in spec.arms if arm.role == "backend"]
        # Each of the runs may be the best, and is compared with all others in both directions.
        self._ranking = Ranking(spec, self._steps, (len(backends) + 1) * len(backends))
        for arm in spec.arms:
            self._ranking.add(arm)
        # An arm that may compute something else is judged by its outcome, not step by step.
        self._by_outcome = set(spec.changed_labels) if spec.same != "steps" else set()
        self._may_repeat = why_no_rounds(spec) is None
        self._extremes = sorted({1, spec.plan.starts})
        """How often the planned training compiles anew, at least and at most."""
        self._warm: set[str] = set()
        """Labels of the runs that have completed a block since they started."""
        self._dropped: dict[str, Ending] = {}
        self._over: Ending | None = None
        self._seconds_before: float | None = None
        """Seconds of the finished training, if only more rounds are measured."""

    def training_is_over(self) -> None:
        """From here on finished runs are timed further, with a budget of their own."""
        self._seconds_before = self._ranking.seconds

    def take(self, label: str, event: Mapping[str, Any]) -> None:
        """Records an event of a run. Its first block, and the first of a script that starts again,
        is a warm-up."""
        is_first = event["kind"] == "block" and label not in self._warm
        self._ranking.racers[label].take({**event, "warm_up": True} if is_first else event)
        if event["kind"] == "block":
            self._warm.add(label)
        elif event["kind"] == "resumed":
            self._warm.discard(label)

    def decide(self, living: Collection[str]) -> Decision:
        """The decision from the rounds so far. `living`: labels of the runs that continue."""
        self._ranking.update()
        left = [racer for racer in self._judged if racer.label in living]
        # Before its end it is not known how good another training is: it does not lose by its
        # speed, and none loses to it.
        lost = [self._losers(left, compilings) for compilings in self._extremes]
        self._dropped |= {label: lost[0][label] for label in lost[0] if label in lost[-1]}
        left = [racer for racer in left if racer.label not in self._dropped]
        self._over = self._over or self._why_over(left)
        return Decision(
            dropped=dict(self._dropped),
            over=self._over,
            block_steps=self._ranking.block_steps(self._spec.block_steps),
            again=self._may_repeat,
        )

    @property
    def budget(self) -> float:
        """Seconds of steps and compiling, of all runs together."""
        if self._plan.max_seconds is not None:
            return self._plan.max_seconds
        step, num_steps = self._ranking.step_seconds, self._num_steps
        if step is None or not num_steps:
            return MOST_BUDGET
        racers = self._ranking.racers.values()
        compiling = sum(racer.compile_seconds for racer in racers)
        once = compiling + num_steps * step * len(racers)
        return min(MOST_BUDGET, max(LEAST_BUDGET, USUAL_BUDGET * once))

    @property
    def _judged(self) -> list[Racer]:
        """Baseline and backends."""
        return [racer for racer in self._ranking.racers.values() if racer.arm.role != "control"]

    def _best(self, left: Sequence[Racer], but: Set[str]) -> Racer:
        """The one that takes the least total time as measured, of all but some labels."""
        timed = {
            racer.label: total
            for racer in left
            if racer.label not in but | self._dropped.keys()
            and (total := self._ranking.total(racer)) is not None
        }
        first = min(timed, key=lambda label: timed[label], default="baseline")
        return self._ranking.racers[first]

    def _losers(self, left: Sequence[Racer], compilings: int) -> dict[str, Ending]:
        """Those that have lost if the training compiles so often, by label."""
        self._ranking.compilings = compilings
        sure = self._best(left, but=self._broken | self._by_outcome)
        return {
            racer.label: self._ending("loses", sure)
            for racer in left
            if self._may_lose(racer) and self._has_lost(racer, sure)
        }

    def _may_lose(self, racer: Racer) -> bool:
        return racer.arm.role == "backend" and racer.label not in self._by_outcome

    def _has_lost(self, racer: Racer, best: Racer) -> bool:
        has_interval = len(step_ratios(racer, self._ranking.baseline)) >= MIN_ROUNDS
        return has_interval and self._ranking.loses(racer, best, MIN_GAIN)

    def _why_over(self, left: Sequence[Racer]) -> Ending | None:
        if self._ranking.baseline not in left or (len(left) == 1 and not self._dropped):
            return self._ending("nothing_left")
        if self._trains_on(left):
            return None
        decided = [self._decided(left, compilings) for compilings in self._extremes]
        if all(decided):
            return decided[0]
        if self._ranking.seconds - (self._seconds_before or 0.0) >= self.budget:
            return self._ending("seconds")
        return None

    def _decided(self, left: Sequence[Racer], compilings: int) -> Ending | None:
        """Why it is decided what is best if the training compiles so often; None if it is not."""
        self._ranking.compilings = compilings
        best, floor = self._best(left, but=self._broken), self._noise_floor
        settled = [self._how_settled(best, rival, floor) for rival in left if rival is not best]
        if all(settled):
            return self._ending("alike" if "alike" in settled else "decided", best)
        return None

    def _how_settled(self, best: Racer, rival: Racer, floor: float) -> Cause | None:
        """How it is sure which of the two to use; None if it is not."""
        if len(step_ratios(best, rival)) < ROUNDS_TO_DECIDE:
            return None
        width = max(self._plan.target_width, floor)
        is_baseline = rival.arm.role == "baseline"
        if self._ranking.beats(best, rival, gain=width if is_baseline else MIN_GAIN):
            return "decided"
        # What is faster and wrong is not recommended, and needs no more rounds.
        if rival.label in self._broken and self._ranking.loses(best, rival):
            return "decided"
        may_be_equal = floor <= MAX_FLOOR_OF_EQUAL
        return "alike" if may_be_equal and self._ranking.are_equal(best, rival, width) else None

    @property
    def _broken(self) -> set[str]:
        """Labels of runs whose losses leave the band, and which are judged by it."""
        return set(self._ranking.broken) - self._by_outcome

    @property
    def _noise_floor(self) -> float:
        """The largest distance from 1 in the interval of a control; the median of several."""
        baseline = self._ranking.baseline
        reaches = [
            max(abs(interval[0] - 1), abs(interval[1] - 1))
            for racer in self._ranking.racers.values()
            if racer.arm.role == "control"
            and (interval := interval_of_median(step_ratios(baseline, racer))) is not None
        ]
        return median(reaches) if reaches else 0.0

    @property
    def _num_steps(self) -> int:
        """Steps of the whole training; 0 if unknown."""
        return self._spec.num_steps or self._ranking.baseline.num_steps

    def _trains_on(self, left: Sequence[Racer]) -> bool:
        """Whether the training goes on to its end although the speed may be decided."""
        if self._seconds_before is not None:
            return False
        steps = self._num_steps - self._ranking.baseline.steps_done
        if self._plan.parity == "full" or any(racer.label in self._by_outcome for racer in left):
            # A script of unknown length ends by itself.
            return steps > 0 or not self._num_steps
        step = self._ranking.step_seconds
        return (
            steps > 0
            and step is not None
            and steps * step * (len(left) + self._spec.controls) < SOON_SECONDS
        )

    def _ending(self, cause: Cause, best: Racer | None = None) -> Ending:
        budget = self.budget if cause == "seconds" else self._steps
        return Ending(
            cause=cause,
            target_width=self._plan.target_width,
            budget=None if cause == "nothing_left" else budget,
            to=None if best is None else best.label,
        )
