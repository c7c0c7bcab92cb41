"""Which candidates a race tries next: neighbours of the best, those that could gain most first."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.candidates import (
    MOVES,
    Shares,
    difference,
    potential,
    presumed,
    usual_compile_seconds,
)
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.supervision.racer import Family, Racer, family_of, step_ratios
from breakeven.runner.supervision.ranking import MIN_GAIN, PROMISING, ROUNDS_TO_JUDGE, Ranking

LONG_WAIT = 0.2
"""Share of a step in which the device waits, from which CUDA graphs are tried first. In three grids
with such steps, all 18 candidates were faster with them (benchmarks/results/searches.md)."""
LARGEST_LEAP = 4
"""Largest factor between the batch sizes of two neighbours."""
PLAIN_MODES = (None, "reduce-overhead")
"""The usual mode of each family: without CUDA graphs and with them."""


class NoGain(NamedTuple):
    """A setting that brought no gain in a family."""

    family: Family
    change: Mapping[str, object]
    """The tried values, by the name of the setting."""


class NextCandidates:
    """Finds the next candidates of a race."""

    def __init__(self, spec: ExperimentSpec, ranking: Ranking, group: int) -> None:
        """`group`: how many candidates compile together."""
        self._spec, self._ranking, self._group = spec, ranking, group
        self._without_gain: list[NoGain] = []
        self._utilizations: list[float] = []
        """Of the device, in the blocks before the first candidate's."""
        self._origins: dict[str, Arm] = {}
        """The arm that a candidate was derived from, by the candidate's label."""
        self._presumed = presumed(spec)

    def take(self, event: Mapping[str, Any]) -> None:
        """Records how much of a block the device works, before the first candidate trains."""
        utilization = event.get("utilization")
        if utilization is not None and "round" in event and not self._has_candidates:
            self._utilizations.append(float(utilization))

    def note_end(self, racer: Racer) -> None:
        """Notes that a candidate has ended. If it is not faster than its origin either, its setting
        brings no gain."""
        ranking, origin = self._ranking, self._origins.get(racer.label)
        if origin is None or origin.label not in ranking.racers:  # its origin was never tried
            return
        before, now = ranking.total(ranking.racers[origin.label]), ranking.total(racer)
        if racer.label in ranking.broken or now is None or before is None or now >= before:
            presumptions = self._presumptions() if racer.arm.backend else {}
            change = difference(racer.arm, replace(origin, **presumptions))
            self._without_gain.append(NoGain(family_of(racer.arm), change))

    @property
    def _has_candidates(self) -> bool:
        """Whether a candidate has trained."""
        return any(candidate.has_trained for candidate in self._ranking.candidates)

    def untried(self, seconds: float = math.inf) -> list[Arm]:
        """Untried neighbours of the best so far, or else of the best of another family; without
        candidates that cannot compile in `seconds`.

        If candidates compile together, a full group costs little more time than one candidate. Then
        neighbours of all families' best join, and neighbours of candidates that are not timed yet
        fill the group. Neighbours that could gain less than half as much as another wait for a
        later group, because this one would wait for their compilation."""
        places: dict[str, tuple[bool, float, Arm]] = {}
        later: list[Arm] = []
        origins = [*self._bases(), *self._untimed]
        while origins and not (places and self._group == 1):
            origin = origins.pop(0)
            racer = self._ranking.racers.get(origin.label)
            is_ahead = racer is None or not racer.blocks
            for gain, arm in self._neighbours(origin):
                if self._shortest_compilation(arm) > seconds:
                    continue
                if is_ahead and arm.autotunes:
                    continue  # It compiles alone.
                place = (is_ahead, -gain, arm)
                if arm.label in places and places[arm.label][:2] <= place[:2]:
                    continue
                self._origins[arm.label] = origin
                if self._comes_after_its_twin(arm):
                    later.append(arm)
                    continue
                places[arm.label] = place
                if self._group > 1 and not is_ahead:
                    origins.append(arm)
        most = -min((negative for _, negative, _ in places.values()), default=0.0)
        ordered = sorted(places.values(), key=itemgetter(0, 1))
        return [arm for _, negative, arm in ordered if most <= 0 or -negative >= most / 2] or later

    def _comes_after_its_twin(self, arm: Arm) -> bool:
        """Whether steps wait so long that the same candidate with CUDA graphs is tried first."""
        if self._shares(self._ranking.baseline).waiting < LONG_WAIT:
            return False
        twins = [
            self._ranking.racers.get(other.label)
            for other in self._spec.candidates
            if difference(other, arm) == {"mode": "reduce-overhead"}
        ]
        ended = self._ranking.ended
        return any(twin is None or not (twin.blocks or twin.label in ended) for twin in twins)

    @property
    def _untimed(self) -> list[Arm]:
        """Candidates of a group on another device, from which further ones derive meanwhile."""
        if self._group == 1:
            return []
        return [
            racer.arm
            for racer in self._ranking.candidates
            if not racer.blocks and racer.label not in self._ranking.ended
        ]

    def _bases(self) -> list[Arm]:
        """A candidate that is about to become the best, the best so far, and the best of each other
        family up to `PROMISING` times its total."""
        best = self._ranking.leading
        limit = PROMISING * (self._ranking.total(best) or math.inf)
        leaders: dict[Family, tuple[float, Arm]] = {}
        for racer in self._ranking.racers.values():
            total = self._ranking.total(racer)
            family = family_of(racer.arm)
            if total is None or total > limit or racer.label in self._ranking.broken:
                continue
            if racer.arm.role != "control" and family != family_of(best.arm):
                former = leaders.get(family)
                if former is None or total < former[0]:
                    leaders[family] = (total, racer.arm)
        ranked = sorted(leaders.values(), key=itemgetter(0))
        return [*self._leader, best.arm, *(arm for _, arm in ranked)]

    @property
    def _leader(self) -> Iterator[Arm]:
        """The candidate of the best one's family with the least total so far, if it is not surely
        the best yet, but ahead by the factor `PROMISING`."""
        ranking, best = self._ranking, self._ranking.leading
        totals = {
            racer.label: total
            for racer in ranking.candidates
            if racer.label not in {*ranking.broken, *ranking.ended}
            and family_of(racer.arm) == family_of(best.arm)
            and len(step_ratios(racer, ranking.baseline)) >= ROUNDS_TO_JUDGE
            and (total := ranking.total(racer)) is not None
        }
        first = min(totals, key=totals.__getitem__, default=ranking.best)
        if PROMISING * totals.get(first, math.inf) < (ranking.total(best) or math.inf):
            yield ranking.racers[first].arm

    def _neighbours(self, origin: Arm) -> list[tuple[float, Arm]]:
        """Untried neighbours of an arm that could gain, each with its possible gain less its
        compile time, the largest first. Ties go to the larger gain, then to CUDA graphs if steps
        wait, then to families, then to the order of `MOVES`. A setting that brought no gain in a
        family is not tried again in that family."""
        shares = self._shares(self._ranking.racers.get(origin.label) or Racer(origin))
        neighbours, fixed = [], self._ranking.baseline.fixed_settings
        presumptions = self._presumptions()
        compiled = replace(origin, **presumptions)
        for arm in self._spec.candidates:
            if arm.backend and not presumptions.items() <= arm.settings.items():
                continue
            # A compiler comes together with the presumed settings.
            base = compiled if arm.backend else origin
            change = difference(arm, base)
            gain = potential(arm, base, shares)
            if (
                arm.label not in self._ranking.racers
                and gain >= MIN_GAIN
                and fixed.isdisjoint(change)
                and _are_neighbours(arm, base, change)
                and NoGain(family_of(arm), change) not in self._without_gain
            ):
                starts_graphs = arm.captures_cuda_graphs > origin.captures_cuda_graphs
                saved = round(shares.waiting, 1) if starts_graphs else 0.0
                net_gain = self._net_gain(arm, gain)
                neighbours.append((-net_gain, -gain, -saved, _rank(change), arm))
        ordered = sorted(neighbours, key=itemgetter(0, 1, 2, 3))
        return [(-negative, arm) for negative, *_, arm in ordered]

    def _presumptions(self) -> dict[str, Any]:
        """The settings that all candidates with a compiler have, until the candidate that has only
        these settings fails or is slower than the baseline."""
        baseline, alone = self._ranking.baseline, self._presumed
        if alone is None:
            return {}
        settings = difference(alone, baseline.arm)
        is_refuted = not baseline.fixed_settings.isdisjoint(settings)
        if alone.label in self._ranking.ended:
            total = self._ranking.total(self._ranking.racers[alone.label])
            usual = self._ranking.total(baseline)
            is_refuted |= total is None or usual is None or total >= usual
        return {} if is_refuted else settings

    def _net_gain(self, arm: Arm, gain: float) -> float:
        """`gain` less the usual compile time, as a share of the baseline's whole training. Rounded
        to tenths, because gain and compile time are guesses."""
        step = self._ranking.baseline.step_seconds
        total = math.inf if step is None else self._spec.tune.steps * step
        return round(gain - self._pace * usual_compile_seconds(arm) / total, 1)

    @property
    def _pace(self) -> float:
        """Compile times so far as a multiple of the usual ones; 1 before the first."""
        paces = [
            racer.compile_seconds / usual
            for racer in self._ranking.racers.values()
            if racer.blocks and (usual := usual_compile_seconds(racer.arm))
        ]
        return median(paces or [1.0])

    def _shares(self, racer: Racer) -> Shares:
        """Shares of a training's time under this run. Under a compiler, a step without CUDA graphs
        waits for about as large a share as the baseline's."""
        total = self._ranking.total(racer)
        loading = median(racer.loading_shares or self._ranking.baseline.loading_shares or [0.0])
        shares = Shares(
            compiling=racer.compile_seconds / total if total else 1.0,
            loading=loading,
            working=1 - loading,
            waiting=1 - loading,
        )
        if not self._utilizations:
            return shares
        working = min(1.0, median(self._utilizations))
        return replace(
            shares,
            working=working,
            waiting=min(1 - working, 1 - loading),
            loading=min(loading, 1 - working),
        )

    def _shortest_compilation(self, arm: Arm) -> float:
        """Shortest compile time of the candidates so far with the same compiler, in seconds; 0
        before the first."""
        seconds = [
            racer.compile_seconds
            for racer in self._ranking.racers.values()
            if racer.blocks and racer.arm.backend == arm.backend
        ]
        return min(seconds, default=0.0)


def _are_neighbours(arm: Arm, other: Arm, change: Mapping[str, object]) -> bool:
    """Whether two arms differ in one setting, or only in their family. A larger batch is tried
    once a batch of a quarter of its size has won."""
    if arm.batch_times > LARGEST_LEAP * other.batch_times:
        return False
    is_family = change.keys() <= {"backend", "mode"} and arm.mode in PLAIN_MODES
    return len(change) == 1 or (is_family and family_of(arm) != family_of(other))


def _rank(change: Mapping[str, object]) -> int:
    names = ["backend", *(move.name for move in MOVES)]
    return min((names.index(name) for name in change if name in names), default=len(names))
