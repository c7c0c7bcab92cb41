"""How often a search proposes a candidate that is no faster, and how near it comes to the best.

Run from the project's root: `.venv/bin/python -m benchmarks.search_trials [COUNT]`

Plays COUNT (200) searches of each kind in numbers only, with the candidates of an AdamW training on
the CPU. Block times vary around each process's own mean, each round independent of the others or
correlated with the previous one; processes of one program differ. Prints Markdown.
"""

import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.tables import markdown
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.candidates import candidates
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec, TuneSpec
from breakeven.runner.supervision.race import Race

USUAL_COUNT = 200
BLOCK_STEPS = 10
LOSSES = 4
"""Losses of a block; those of all steps would take longer to judge and change nothing."""
STEP_SECONDS = 0.01
"""Step time of the baseline."""
LONGEST = 5_000
"""Most rounds."""
NEAR = 1.03
"""Factor over the best total that a search has to reach."""

Speed = Callable[[Arm], tuple[float, float]]
"""Seconds to compile, and step time relative to the baseline's."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """The noise of block times."""

    block: float = 0.01
    """Standard deviation of the logarithm of a block's time."""
    likeness: float = 0.0
    """Correlation with the previous round."""
    process: float = 0.0
    """Standard deviation of the logarithm of a process's mean."""


def search(backends: tuple[str, ...] = (), *, steps: int = 10_000) -> ExperimentSpec:
    """The search among these candidates, or among all that apply."""
    spec = ExperimentSpec(
        name="search",
        scenario="tune",
        training=TrainingSpec(optimizer="AdamW"),
        tune=TuneSpec(steps=steps, max_seconds=600_000.0, at_once=3),
    )
    return replace(spec, backends=backends or candidates(spec))


class Track:
    """Plays a race. Candidates in `wrong` compute other losses from round `wrong_from` on; those in
    `dies` fail."""

    def __init__(
        self,
        spec: ExperimentSpec,
        speed: Speed,
        seed: str,
        noise: Noise,
        compiling_at_once: int = 1,
    ) -> None:
        self.race, self.spec = Race(spec, compiling_at_once), spec
        self.living: dict[str, Arm] = {}
        self.tried: list[str] = []
        self.endings: dict[str, str] = {}
        self.wrong: set[str] = set()
        self.wrong_from = 0
        self.dies: set[str] = set()
        self.num_rounds = 0
        self._speed, self._noise = speed, noise
        self._random = random.Random(seed)
        self._pace: dict[str, float] = {}
        self._strays: dict[str, float] = {}
        for arm in spec.arms:
            self._join(arm)

    def run(self, max_rounds: int = LONGEST, *, elapsed: float = 0.0) -> str:
        """Plays to the end; returns its cause. `elapsed`: seconds since the start, all the time."""
        while self.num_rounds < max_rounds:
            self.play_round()
            decision = self.race.decide(self.living, elapsed)
            for label, ending in decision.dropped.items():
                self.endings[label] = ending.cause
                del self.living[label]
            if decision.over is not None:
                return decision.over.cause
            for arm in decision.joining:
                self._join(arm)
        return "unended"

    def play_round(self) -> None:
        """Each run makes a block; those that die then fail."""
        for label in self.living:
            self._play_block(label)
        for label in self.dies & self.living.keys():
            del self.living[label]
        self.num_rounds += 1

    def _join(self, arm: Arm) -> None:
        compiling, share = self._speed(arm)
        own = math.exp(self._random.gauss(0, self._noise.process))
        samples = BLOCK_STEPS * arm.batch_times
        self._pace[arm.label] = samples * STEP_SECONDS * share * own
        self.living[arm.label] = arm
        self.race.add(arm)
        if arm.role == "backend":
            self.tried.append(arm.label)
        self._write(arm.label, -1, compiling + self._pace[arm.label], compiled=True)

    def _play_block(self, label: str) -> None:
        likeness = self._noise.likeness
        fresh = self._random.gauss(0, self._noise.block * math.sqrt(1 - likeness**2))
        self._strays[label] = likeness * self._strays.get(label, 0.0) + fresh
        seconds = self._pace[label] * math.exp(self._strays[label])
        self._write(label, self.num_rounds, seconds, compiled=False)
        is_wrong = label in self.wrong and self.num_rounds >= self.wrong_from
        loss = math.exp(-self.num_rounds / 50) + 0.1 * is_wrong
        for step in range(LOSSES * self.num_rounds, LOSSES * (self.num_rounds + 1)):
            self.race.take(label, {"kind": "step", "step": step, "loss": loss})

    def _write(self, label: str, number: int, seconds: float, *, compiled: bool) -> None:
        self.race.take(
            label,
            {
                "kind": "block",
                "round": number,
                "seconds": seconds,
                "num_steps": BLOCK_STEPS,
                "compiled": compiled,
            },
        )


class Landscape:
    """An invented machine, on which half of all values of settings change the step time."""

    def __init__(self, seed: str) -> None:
        chance = random.Random(seed)
        spec = search()
        settings = [arm.settings for arm in (*spec.arms[:1], *spec.candidates)]
        values = sorted({(name, str(value)) for own in settings for name, value in own.items()})
        plain = {(name, str(value)) for name, value in settings[0].items()}
        self._factors = {
            value: 1.0
            if value in plain or chance.random() < 0.5
            else math.exp(chance.gauss(-0.03, 0.1))
            for value in values
        }
        self._compiling = {value: chance.uniform(0, 10) for value in values}

    def speed(self, arm: Arm) -> tuple[float, float]:
        """Only a compiler takes compile time, and some settings take more."""
        values = [(name, str(value)) for name, value in arm.settings.items()]
        compiling = sum(
            self._compiling[value] for value in values if value[1] not in ("None", "False")
        )
        share = math.prod(self._factors[value] for value in values)
        return (compiling if arm.backend else 0.0), share

    def total(self, arm: Arm, steps: int) -> float:
        """True seconds of a training."""
        compiling, share = self.speed(arm)
        return compiling + steps * STEP_SECONDS * share


def equal_searches(count: int, noise: Noise) -> int:
    """Number of searches among equal candidates that propose one."""
    num_proposing = 0
    for number in range(count):
        track = Track(search(), lambda arm: (0.0, 1.0), f"equal/{number}", noise)
        track.run()
        num_proposing += bool(track.race.finalists())
    return num_proposing


def nearness(count: int, steps: int, noise: Noise) -> Iterator[tuple[float, int]]:
    """For searches on `count` machines: the total of the chosen candidate over the best total, and
    the number of tried candidates."""
    for number in range(count):
        land = Landscape(f"land/{number}")
        spec = search(steps=steps)
        track = Track(spec, land.speed, f"search/{number}", noise)
        track.run()
        everyone = {arm.label: arm for arm in (spec.arms[0], *spec.candidates)}
        best = min(land.total(arm, steps) for arm in everyone.values())
        yield land.total(everyone[track.race.best], steps) / best, len(track.tried)


NOISES = (
    Noise(),
    Noise(block=0.05),
    Noise(block=0.05, likeness=0.3),
    Noise(process=0.005),
    Noise(block=0.03, likeness=0.3, process=0.005),
)


def equal_row(count: int, noise: Noise) -> dict[str, object]:
    return {
        "noise of blocks": f"{noise.block:.0%}",
        "likeness of rounds": f"{noise.likeness:g}",
        "difference of processes": f"{noise.process:.1%}",
        "searches that propose a candidate": f"{equal_searches(count, noise)} of {count}",
    }


def near_row(count: int, steps: int) -> dict[str, object]:
    searches = list(nearness(count, steps, NOISES[-1]))
    ratios, tried = zip(*searches, strict=True)
    return {
        "planned steps": f"{steps:,}",
        f"within {NEAR - 1:.0%} of the best total": f"{sum(r <= NEAR for r in ratios)} of {count}",
        "farthest": f"{max(ratios):.3f}x",
        "candidates tried, median": f"{median(tried):.0f} of {len(search().candidates)}",
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    print("Equal candidates:\n")  # noqa: T201
    print(markdown([equal_row(count, noise) for noise in NOISES]))  # noqa: T201
    print("\nCandidates of different speed, with the last of these noises:\n")  # noqa: T201
    print(markdown([near_row(count, steps) for steps in (1_000, 50_000)]))  # noqa: T201


if __name__ == "__main__":
    main()
