"""Whether ending an experiment early makes false positives: by the width of its intervals, or once
it is decided what is best for a plan.

Run from the project's root: `.venv/bin/python -m benchmarks.stopping_trials [COUNT]`

Simulates COUNT (1000) experiments for each kind of noise, in numbers only: a baseline and a run of
equal work. Their block times vary by Student's t with 4 degrees of freedom, each round independent
of the others or correlated with the previous one. The product's stopping rule ends them and the
product's statistics judge them. On the same numbers, the table also has the naive rule, which ends
an experiment once the difference is significant. Then it
plays COUNT planned trainings of equal work, and of 3 % less, with the product's rule for plans, and
beside them trainings of a fixed number of rounds. Prints Markdown.
"""

import math
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.search_trials import LOSSES, Noise
from benchmarks.tables import markdown
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.specs.experiment import ExperimentSpec, PlanSpec, SpeedSpec, TrainingSpec
from breakeven.runner.supervision.plan_rule import PlanRule
from breakeven.runner.supervision.stopping_rule import LOOK_GROWTH, StoppingRule
from breakeven.storage.statistics.speedups import (
    SIGNIFICANCE,
    Ratio,
    SpeedVerdict,
    noise_floor,
    paired_ratio,
    sign_test_p,
    speed_verdict,
)

USUAL_COUNT = 1000
SPEED = SpeedSpec(max_rounds=400, target_width=0.02)
NOISES = ((0.01, 0.0), (0.03, 0.0), (0.03, 0.3))
"""Standard deviation of a block's time, and correlation with the previous round."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Block times of two runs of equal work, up to the budget."""

    baseline: Floats
    other: Floats

    def rounds_by_width(self) -> int:
        """Number of rounds after which the product's rule ends the experiment."""
        rule = StoppingRule(SPEED, {"one": "baseline", "two": "backend"}, float("inf"))
        times = zip(self.baseline.tolist(), self.other.tolist(), strict=True)
        for number, (first, second) in enumerate(times, 1):
            rule.add("one", number, first)
            rule.add("two", number, second)
            if rule.ending(["one", "two"]):
                return min(number + 1, SPEED.max_rounds)
        return SPEED.max_rounds

    def is_significant(self, num_rounds: int) -> bool:
        logs = np.log(self.baseline[:num_rounds] / self.other[:num_rounds])
        return sign_test_p(logs) < SIGNIFICANCE

    def is_significant_at_some_look(self) -> bool:
        """The report of the naive rule, with the same looks."""
        look = SPEED.min_rounds
        while look <= SPEED.max_rounds:
            if self.is_significant(look):
                return True
            look = int(np.ceil(LOOK_GROWTH * look))
        return False

    def judged(self, num_rounds: int) -> Ratio:
        ratio = paired_ratio(self.baseline[:num_rounds], self.other[:num_rounds])
        assert ratio is not None
        return ratio


def simulate(count: int, deviation: float, correlation: float, seed: int = 0) -> list[Trial]:
    random = np.random.default_rng(seed)

    def times() -> Floats:
        shocks = random.standard_t(4, size=SPEED.max_rounds) * deviation / np.sqrt(2)
        logs = [shocks[0]]
        for shock in shocks[1:]:
            logs.append(correlation * logs[-1] + np.sqrt(1 - correlation**2) * shock)
        return np.exp(logs)

    return [Trial(baseline=times(), other=times()) for _ in range(count)]


def row(count: int, deviation: float, correlation: float) -> dict[str, object]:
    trials = simulate(count, deviation, correlation)
    rounds = [trial.rounds_by_width() for trial in trials]
    ends = list(zip(trials, rounds, strict=True))
    ratios = [trial.judged(n) for trial, n in ends]
    return {
        "noise": f"{deviation:.0%}",
        "correlation": correlation,
        "rounds (5 %, median, 95 %)": ", ".join(
            f"{n:.0f}" for n in np.percentile(rounds, [5, 50, 95])
        ),
        "p < 0.05, by width": share([trial.is_significant(n) for trial, n in ends]),
        "until significant": share([trial.is_significant_at_some_look() for trial in trials]),
        "called faster or slower": share([is_called_different(ratio) for ratio in ratios]),
    }


def is_called_different(ratio: Ratio) -> bool:
    """Whether the product's verdict is faster or slower, on a machine without a noise floor."""
    return speed_verdict(ratio, ratio.p_value, None) in ("faster", "slower")


def share(answers: list[bool]) -> str:
    return f"{np.mean(answers):.1%}"


STEP_SECONDS = 0.01
BLOCK_STEPS = 10


def planned_spec(steps: int) -> ExperimentSpec:
    """A training of 40,000 steps, which never ends within the budget."""
    return ExperimentSpec(
        name="planned",
        backends=("eager",),
        block_steps=BLOCK_STEPS,
        training=TrainingSpec(max_steps=40_000, epochs=1000),
        plan=PlanSpec(steps=steps, max_seconds=300.0),
    )


class Planned:
    """Plays a planned training in numbers: baseline, control and backends. Those in `wrong` compute
    other losses."""

    def __init__(
        self,
        spec: ExperimentSpec,
        paces: Mapping[str, float],
        seed: str,
        noise: Noise,
        compiling: float = 1.0,
    ) -> None:
        """`paces`: the step time of each backend as a share of the baseline's. `compiling`: seconds
        of each backend."""
        self.rule, self.wrong = PlanRule(spec), set[str]()
        self.over: Ending | None = None
        self.endings: dict[str, str] = {}
        self.ended_after: dict[str, int] = {}
        self.num_rounds = 0
        self.times: dict[str, list[float]] = {}
        self._random, self._noise = Random(seed), noise
        self._strays: dict[str, float] = {}
        self._paces: dict[str, float] = {}
        for arm in spec.arms:
            own = math.exp(self._random.gauss(0, noise.process))
            self._paces[arm.label] = paces.get(arm.label, 1.0) * own
            self.times[arm.label] = []
            compiled = arm.role == "backend"
            self._write(arm.label, 0, 0.1 + compiling * compiled, compiled=compiled)

    def play(self, most: int = 5000) -> str:
        """Plays to the end; returns its cause."""
        while self.over is None and self.num_rounds < most:
            self.play_rounds(1)
            decision = self.rule.decide(self.living)
            for label, ending in decision.dropped.items():
                self.endings.setdefault(label, ending.cause)
                self.ended_after.setdefault(label, self.num_rounds)
            self.over = decision.over
        return "unended" if self.over is None else self.over.cause

    @property
    def living(self) -> list[str]:
        return [label for label in self.times if label not in self.endings]

    def play_rounds(self, count: int) -> None:
        for _ in range(count):
            self.num_rounds += 1
            for label in self.living:
                self._play_block(label)

    def _play_block(self, label: str) -> None:
        likeness = self._noise.likeness
        fresh = self._random.gauss(0, self._noise.block * math.sqrt(1 - likeness**2))
        self._strays[label] = likeness * self._strays.get(label, 0.0) + fresh
        seconds = BLOCK_STEPS * STEP_SECONDS * self._paces[label] * math.exp(self._strays[label])
        self.times[label].append(seconds)
        self._write(label, self.num_rounds, seconds, compiled=False)

    def _write(self, label: str, number: int, seconds: float, *, compiled: bool) -> None:
        loss = math.exp(-number / 50) + 0.1 * (label in self.wrong)
        # Later losses would take longer to judge and change nothing.
        for step in range(LOSSES * number, LOSSES * (number + 1) if number < 10 else 0):
            self.rule.take(label, {"kind": "step", "step": step, "loss": loss})
        self.rule.take(
            label,
            {
                "kind": "block",
                "round": number,
                "first_step": BLOCK_STEPS * number,
                "num_steps": BLOCK_STEPS,
                "seconds": seconds,
                "compiled": compiled,
            },
        )

    @property
    def verdict(self) -> SpeedVerdict:
        """The product's verdict on the backend after these rounds."""
        baseline, backend = self.times["baseline"], self.times["eager"]
        ratio = paired_ratio(baseline[: len(backend)], backend)
        floor = noise_floor([paired_ratio(baseline, self.times["control"])])
        assert ratio is not None
        return speed_verdict(ratio, ratio.p_value, floor)


PLANNED_NOISES = (
    Noise(),
    Noise(block=0.03),
    Noise(block=0.03, likeness=0.3),
    Noise(process=0.005),
    Noise(block=0.05, likeness=0.3, process=0.005),
)
FIXED_ROUNDS = 40


def planned_row(count: int, truth: float, noise: Noise) -> dict[str, object]:
    """How planned trainings end, beside trainings of `FIXED_ROUNDS` rounds."""
    ended, shown, fixed, rounds = Counter[str](), Counter[str](), Counter[str](), []
    for number in range(count):
        trial = Planned(planned_spec(20_000), {"eager": truth}, f"{number}/{truth}", noise, 0.0)
        cause = trial.play()
        use = f"use {trial.over.to}" if trial.over and cause == "decided" else cause
        ended[use] += 1
        shown[trial.verdict] += 1
        rounds.append(trial.num_rounds)
        plain = Planned(
            planned_spec(20_000), {"eager": truth}, f"fixed/{number}/{truth}", noise, 0.0
        )
        plain.play_rounds(FIXED_ROUNDS)
        fixed[plain.verdict] += 1

    def shares(counts: Counter[str], *names: str) -> str:
        return ", ".join(f"{counts[name] / count:.1%}" for name in names)

    return {
        "noise": f"{noise.block:.0%}",
        "likeness": noise.likeness,
        "processes": f"{noise.process:.1%}",
        "backend, baseline": shares(ended, "use eager", "use baseline"),
        "equal, open": shares(ended, "alike", "seconds"),
        "rounds (median, 95 %)": ", ".join(f"{n:.0f}" for n in np.percentile(rounds, [50, 95])),
        "shown faster, slower, same": shares(shown, "faster", "slower", "same"),
        f"{FIXED_ROUNDS} rounds": shares(fixed, "faster", "slower", "same"),
    }


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else USUAL_COUNT
    rows = [row(count, deviation, correlation) for deviation, correlation in NOISES]
    sys.stdout.write(f"{markdown(rows)}\n\n")
    for truth in (1.0, 1 / 1.03):
        rows = [planned_row(count, truth, noise) for noise in PLANNED_NOISES]
        sys.stdout.write(f"{markdown(rows)}\n\n")


if __name__ == "__main__":
    main()
