"""A search drops what loses, combines what gains, and leaves alone what is equal."""

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from breakeven.runner.specs.candidates import candidates, difference
from breakeven.runner.specs.experiment import ExperimentSpec, TrainingSpec, TuneSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.supervision.race import ERROR_RATE, Race, stake

BLOCK = 10
STEP = 0.01
"""Seconds of the baseline's steps."""

Speed = Callable[[Variant], tuple[float, float]]
"""Seconds to compile, and of a step over the baseline's."""


def search(backends: tuple[str, ...] = (), steps: int = 10_000) -> ExperimentSpec:
    spec = ExperimentSpec(
        name="search", scenario="tune", training=TrainingSpec(optimizer="AdamW"),
        tune=TuneSpec(steps=steps, max_seconds=600_000.0, at_once=3),
    )  # fmt: skip
    return replace(spec, backends=backends or candidates(spec))


class Track:
    """Plays a race with made-up times; each block has independent noise."""

    def __init__(self, spec: ExperimentSpec, speed: Speed, seed: int = 0, noise: float = 0.01):
        self.race, self.spec, self._speed = Race(spec), spec, speed
        self._random, self._noise = random.Random(seed), noise
        self.living: dict[str, Variant] = {}
        self.tried: list[str] = []
        self.endings: dict[str, str] = {}
        self.wrong: set[str] = set()
        self.dies: set[str] = set()
        for variant in spec.variants:
            self._join(variant)

    def _join(self, variant: Variant) -> None:
        self.living[variant.label] = variant
        self.race.add(variant)
        compiling, share = self._speed(variant)
        if variant.role == "backend":
            self.tried.append(variant.label)
        seconds = compiling + BLOCK * STEP * share
        self._block(variant.label, -1, seconds, compiled=True)

    def _block(self, label: str, number: int, seconds: float, *, compiled: bool) -> None:
        self.race.take(label, {"kind": "block", "round": number, "seconds": seconds,
                               "num_steps": BLOCK, "compiled": compiled})  # fmt: skip

    def run(self, max_rounds: int = 2_000) -> str:
        """To the end; the cause of it."""
        for number in range(max_rounds):
            for label, variant in self.living.items():
                share = self._speed(variant)[1]
                noise = math.exp(self._random.gauss(0, self._noise))
                self._block(label, number, BLOCK * STEP * share * noise, compiled=False)
                loss = math.exp(-number / 50) + (0.1 if label in self.wrong else 0.0)
                self.race.take(label, {"kind": "step", "step": number, "loss": loss})
            for label in self.dies & self.living.keys():
                del self.living[label]
            decision = self.race.decide(self.living, elapsed=0.0)
            for label, ending in decision.dropped.items():
                self.endings[label] = ending.cause
                del self.living[label]
            if decision.over is not None:
                return decision.over.cause
            for variant in decision.joining:
                self._join(variant)
        return "unended"


def test_a_stake_is_what_fair_bets_come_to() -> None:
    # After one round: the mean of 2p over p from 1/2 to 1 is 3/2, of 2 (1 - p) it is 1/2.
    assert (stake(0, 0), stake(1, 1), stake(0, 1)) == (1.0, 1.5, 0.5)
    # After two rounds that win: the mean of 4 p^2 is 7/3.
    assert stake(2, 2) == pytest.approx(7 / 3)


def test_in_the_mean_a_fair_coin_wins_nothing() -> None:
    for rounds in (1, 5, 20):
        mean = sum(math.comb(rounds, k) * stake(k, rounds) for k in range(rounds + 1)) / 2**rounds
        assert mean == pytest.approx(1)


def test_settings_that_gain_are_combined() -> None:
    def speed(variant: Variant) -> tuple[float, float]:
        share = 0.8 if variant.backend else 1.0
        share *= 0.9 if variant.optimizer == "fused" else 1.0
        share *= 0.95 if variant.options.get("cpp_wrapper") else 1.0
        return 5.0 if variant.backend else 0.0, share

    track = Track(search(), speed)
    assert track.run() == "searched"
    assert track.race.best == "inductor-fused-cpp_wrapper_true"
    assert track.race.finalists()[0].label == track.race.best
    assert len(track.tried) < len(track.spec.candidates)


def test_equal_candidates_leave_the_training_as_it_is() -> None:
    track = Track(search(), lambda variant: (0.0, 1.0))
    assert track.run() == "searched"
    assert (track.race.best, track.race.finalists()) == ("baseline", ())


def test_whether_compiling_pays_depends_on_the_length() -> None:
    # 10 s to compile, 2 ms saved a step: even after 5,000 steps.
    def speed(variant: Variant) -> tuple[float, float]:
        return (10.0, 0.8) if variant.backend else (0.0, 1.0)

    short, long = Track(search(("inductor",), 4_000), speed), Track(search(("inductor",), 7_000),
                                                                    speed)  # fmt: skip
    short.run()
    long.run()
    assert (short.race.best, long.race.best) == ("baseline", "inductor")
    assert short.endings == {"inductor": "loses"}


def test_a_candidate_may_not_compile_longer_than_the_best_takes_in_all() -> None:
    track = Track(search(("inductor",), 4_000), lambda variant: (0.0, 1.0), noise=0.0)
    assert track.race.most_compile_seconds() is None  # Nothing is timed yet.
    track.run(max_rounds=1)
    assert track.race.most_compile_seconds() == pytest.approx(4_000 * STEP)


def test_a_fast_candidate_that_computes_wrongly_is_dropped_and_never_combined() -> None:
    def speed(variant: Variant) -> tuple[float, float]:
        return 1.0, 0.5 if variant.scope == "blocks" else 0.8 if variant.backend else 1.0

    track = Track(search(), speed)
    track.wrong = {one.label for one in track.spec.candidates if one.scope == "blocks"}
    track.run()
    wrong = track.wrong & set(track.tried)
    assert {track.endings[label] for label in wrong} == {"wrong"}
    assert len(wrong) == 1
    assert not {one.label for one in track.race.finalists()} & track.wrong


def test_a_candidate_that_fails_gives_its_place_back() -> None:
    track = Track(search(), lambda variant: (1.0, 0.8 if variant.backend else 1.0))
    track.dies = {"inductor"}
    assert track.run() == "searched"
    assert track.race.best == "baseline"


def test_only_neighbours_of_the_best_are_tried() -> None:
    track = Track(search(), lambda variant: (0.0, 1.0))
    track.run(max_rounds=1)
    baseline = track.spec.variants[0]
    known = {one.label: one for one in track.spec.candidates}
    assert track.tried
    assert all(len(difference(known[label], baseline)) == 1 for label in track.tried)


def test_the_search_ends_without_a_baseline() -> None:
    track = Track(search(), lambda variant: (0.0, 1.0))
    track.dies = {"baseline"}
    assert track.run() == "nothing_left"


def test_the_best_candidate_is_dropped_in_few_of_many_noisy_races() -> None:
    names = ("none:optimizer=fused", "none:optimizer=foreach", "inductor")

    def speed(variant: Variant) -> tuple[float, float]:
        return 0.0, 0.97 if variant.optimizer == "fused" else 1.0

    lost = 0
    for seed in range(100):
        track = Track(search(names), speed, seed, noise=0.05)
        track.run()
        lost += track.endings.get("none-fused") == "loses"
    assert lost <= 100 * ERROR_RATE
