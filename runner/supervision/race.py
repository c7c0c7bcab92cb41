"""The race of a search: decides from times and losses of the runs which candidates to try, which to
end, and which one is the best.

The race begins with the baseline. Candidates that differ from the best so far in one setting take
turns with it. A candidate ends as soon as it surely loses at the planned length, compile time
included, or its losses leave the band of equal trainings, or `MAX_ROUNDS` rounds do not show that
it gains `MIN_GAIN`. A candidate that surely wins becomes the best so far, and its neighbours are
tried next: so settings that gain are combined, and their combination is measured.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from breakeven.runner.protocol.endings import Ending
from breakeven.runner.specs.arm_fields import NEED_NO_COMPILER, Arm
from breakeven.runner.specs.candidates import difference
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.supervision.decision import Decision
from breakeven.runner.supervision.next_candidates import NextCandidates
from breakeven.runner.supervision.racer import Racer, family_of, step_ratios
from breakeven.runner.supervision.ranking import Ranking

MAX_ROUNDS = 60
"""Rounds after which a candidate ends that has neither won nor lost."""
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
PATIENCE = 0.1
"""Time in which a candidate is timed before it makes room for another, as a share of the budget."""
PATIENT_ROUNDS = 4
"""Fewest rounds before it makes room."""
OVERTIME = 0.25
"""Time after the budget in which compiled candidates may be decided, as a share of the budget."""


class Race:
    """Decides after each round from the journals of all runs."""

    def __init__(self, spec: ExperimentSpec, compiling_at_once: int = 1) -> None:
        """`compiling_at_once`: how many candidates may compile at the same time."""
        self._spec, self._plan = spec, spec.tune
        self._group = compiling_at_once if spec.compile == "together" else 1
        self._ranking = Ranking(spec, spec.tune.steps, len(spec.candidates))
        self._next = NextCandidates(spec, self._ranking, self._group)
        self._timed_since: dict[str, float] = {}
        """Seconds from the start to the first round of each candidate."""

    def add(self, arm: Arm) -> None:
        """Adds a run to the race."""
        self._ranking.add(arm)

    def take(self, label: str, event: Mapping[str, Any]) -> None:
        """Records an event of a run."""
        self._ranking.racers[label].take(event)
        self._next.take(event)

    @property
    def best(self) -> str:
        """Label of the best so far: at first the baseline, then each run that surely beats it."""
        return self._ranking.best

    @property
    def baseline_step_seconds(self) -> float | None:
        """Median seconds per step; None before its first block that counts."""
        return self._ranking.baseline.step_seconds

    @property
    def block_steps(self) -> int | None:
        """Most steps of the next blocks; None for those of the experiment."""
        return self._ranking.block_steps(self._spec.block_steps)

    @property
    def seconds(self) -> float:
        """Seconds of all blocks, compile time included."""
        return self._ranking.seconds

    def decide(self, living: Collection[str], elapsed: float) -> Decision:
        """The decision after a round. `living`: labels of runs that continue. `elapsed`: seconds
        since the start."""
        if self._ranking.baseline.label not in living:
            return Decision(over=self._ending("nothing_left"))
        self._forget_dead(living)
        self._ranking.update()
        dropped = self._drop_wrong_best()
        for racer in self._racing(living):
            ending = self._why_dropped(racer)
            if ending is not None:
                dropped[racer.label] = ending
                self._end(racer)
            elif self._ranking.beats(racer, self._ranking.leading):
                dropped |= self._make_best(racer)
        racing, budget = self._racing(living), self._plan.max_seconds
        if elapsed >= budget:
            is_open = any(map(self._ranking.is_open, racing))
            is_over = elapsed >= (1 + OVERTIME) * budget or not is_open
            over = self._ending("seconds", budget) if is_over else None
            return Decision(dropped=dropped, over=over)
        if self.baseline_step_seconds is None:  # Needed to know which candidates have lost.
            return Decision(dropped=dropped)
        at_once = self._at_once
        free = max(0, at_once - len(racing))
        # Candidates that compile together join together, after those before them are timed.
        are_timed = all(
            len(step_ratios(candidate, self._ranking.baseline)) > 1 for candidate in racing
        )
        if self._group > 1 and racing and (free < at_once / 2 or not are_timed):
            free = 0
        late = [] if free else self._late(racing, elapsed)
        waiting = self._next.untried(budget - elapsed) if free or late else []
        if waiting:
            dropped |= self._make_room(late, self._first(racing))
        if not racing and not waiting:
            is_cut = bool(self._next.untried())
            over = self._ending("seconds", budget) if is_cut else self._ending("searched")
            return Decision(dropped=dropped, over=over)
        return Decision(dropped=dropped, joining=tuple(waiting[:free]))

    def _late(self, racing: Sequence[Racer], elapsed: float) -> list[Racer]:
        """Candidates that are not decided within `PATIENCE`, unless one takes the least total."""
        timed = [racer for racer in racing if racer.blocks]
        for racer in timed:
            self._timed_since.setdefault(racer.label, elapsed)
        limit = elapsed - PATIENCE * self._plan.max_seconds
        first = self._first(racing)
        return [
            racer
            for racer in timed
            if racer is not first
            and len(racer.blocks) >= PATIENT_ROUNDS
            and self._timed_since[racer.label] < limit
        ]

    def _first(self, racers: Sequence[Racer]) -> Racer:
        """The one with the least total time of these and the best so far."""
        return min(
            [self._ranking.leading, *racers],
            key=lambda racer: self._ranking.total(racer) or math.inf,
        )

    def _make_room(self, late: Sequence[Racer], first: Racer) -> dict[str, Ending]:
        """Ends candidates for others that wait; a training may still confirm them."""
        for racer in late:
            self._end(racer)
        return {
            racer.label: self._ending("equal", len(racer.blocks), first.label) for racer in late
        }

    @property
    def _at_once(self) -> int:
        """How many candidates may race at once on a device, beside the baseline, its controls and
        the best."""
        wanted = max(self._plan.at_once, min(self._group, LARGEST_GROUP))
        baseline = self._ranking.baseline
        if baseline.device_bytes is None:
            return wanted
        memory = baseline.memory_bytes + PROCESS_BYTES
        fits = int(USABLE_MEMORY * baseline.device_bytes / memory)
        others = 1 + self._spec.controls + (self._ranking.best != "baseline")
        return max(1, min(wanted, fits - others))

    def is_compiling(self, label: str) -> bool:
        """Whether the run is a candidate before the end of its first block."""
        racer = self._ranking.racers[label]
        return racer.arm.role == "backend" and not racer.has_trained

    def most_compile_seconds(self) -> float | None:
        """Longest compile time of a candidate: beyond it, even steps of 0 s would lose. None before
        the best so far is timed."""
        return self._ranking.total(self._ranking.leading)

    def finalists(self) -> tuple[Arm, ...]:
        """The candidates to confirm: the one with the least total time, and the best of another
        family or batch size, or else the second best. Another family seldom has the same fault, if
        the best turns out to train wrongly. With larger batches there are three, and one of them
        has the original batch size. All probably beat the baseline. Then the combination from
        `_combined`."""
        self._ranking.update()
        ranking = self._ranking
        winners = [
            racer
            for racer in ranking.candidates
            if racer.label not in ranking.broken and ranking.probably_wins(racer)
        ]
        ranked = sorted(winners, key=lambda racer: ranking.total(racer) or math.inf)
        same = [racer for racer in ranked if racer.arm.batch_times == 1]
        most = 2 if len(same) == len(ranked) else 3
        kinds = {(family_of(racer.arm), racer.arm.batch_times): racer for racer in reversed(ranked)}
        chosen = [racer for racer in ranked if racer in kinds.values()][:most]
        if len(chosen) == 1:
            chosen = ranked[:2]
        if same and same[0] not in chosen:
            chosen[most - 1 :] = same[:1]
        return (*(racer.arm for racer in chosen), *(self._combined(ranked) if ranked else ()))

    def rounds_to_confirm(self, finalists: Sequence[Arm]) -> float:
        """Rounds of a training that confirms the first of them; infinite without a lead."""
        return self._ranking.rounds_to_confirm(finalists[0].label)

    def _combined(self, winners: Sequence[Racer]) -> Iterator[Arm]:
        """The untimed candidate that adds to the best the settings that won without a compiler,
        such as `optimizer=fused`. The search may have had no time to try them with the best."""
        baseline, best = self._ranking.baseline.arm, winners[0].arm
        chosen = {"batch_times", *difference(best, baseline)}
        added: dict[str, object] = {}
        for winner in reversed(winners):
            gain = difference(winner.arm, baseline)
            if len(gain) == 1 and gain.keys() <= {*NEED_NO_COMPILER} - chosen:
                added |= gain
        for arm in self._spec.candidates:
            racer = self._ranking.racers.get(arm.label)
            is_open = racer is None or not (racer.blocks or racer.has_failed)
            if added and is_open and difference(arm, best) == added:
                yield arm

    def _racing(self, living: Collection[str]) -> list[Racer]:
        """The living candidates that are neither the best nor decided."""
        racing = {*living} - {self._ranking.best, *self._ranking.ended}
        return [racer for racer in self._ranking.candidates if racer.label in racing]

    def _forget_dead(self, living: Collection[str]) -> None:
        """Ends candidates that failed; the baseline replaces a best so far that failed."""
        if self._ranking.best not in living:
            self._ranking.best = "baseline"
        for racer in self._ranking.candidates:
            if racer.label not in {*living, *self._ranking.ended}:
                self._end(racer)

    def _end(self, racer: Racer) -> None:
        self._ranking.ended.add(racer.label)
        self._next.note_end(racer)

    def _make_best(self, racer: Racer) -> dict[str, Ending]:
        """Makes a candidate the best so far, and ends the former one, which has lost."""
        before, self._ranking.best = self._ranking.best, racer.label
        if before == "baseline":  # stays: all speedups refer to it
            return {}
        self._end(self._ranking.racers[before])
        return {before: self._ending("loses", self._plan.steps, racer.label)}

    def _why_dropped(self, racer: Racer) -> Ending | None:
        best = self._ranking.leading
        if racer.label in self._ranking.broken:
            return self._ending("wrong")
        if self._ranking.loses(racer, best):
            return self._ending("loses", self._plan.steps, best.label)
        if len(step_ratios(racer, best)) >= MAX_ROUNDS:
            return self._ending("equal", MAX_ROUNDS, best.label)
        return None

    def _drop_wrong_best(self) -> dict[str, Ending]:
        """Ends the best so far if its losses have left the band; the baseline takes its place."""
        if self._ranking.best not in self._ranking.broken:
            return {}
        before, self._ranking.best = self._ranking.best, "baseline"
        self._end(self._ranking.racers[before])
        return {before: self._ending("wrong")}

    def _ending(self, cause: Any, budget: float | None = None, to: str | None = None) -> Ending:
        return Ending(cause=cause, target_width=self._spec.speed.target_width, budget=budget, to=to)
