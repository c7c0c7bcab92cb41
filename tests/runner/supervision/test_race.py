"""A search drops what loses, combines what gains, and leaves alone what is equal."""

import math
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.search_trials import Noise, Speed, Track, search
from breakeven.runner.protocol.endings import Ending
from breakeven.runner.protocol.sequential_test import stake
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.candidates import candidates
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.supervision.decision import Decision
from breakeven.runner.supervision.race import Race
from breakeven.runner.supervision.ranking import ERROR_RATE

STEP = 0.01
"""Seconds of the baseline's steps."""
BLOCK = {"kind": "block", "round": 0, "seconds": 0.1, "num_steps": 10, "compiled": False}


def raced(spec: ExperimentSpec, speed: Speed, seed: int = 0, noise: float = 0.01) -> Track:
    return Track(spec, speed, str(seed), Noise(block=noise))


def on_cuda(*backends: str) -> ExperimentSpec:
    spec = replace(search(steps=1_000_000), devices=("cuda:0",))
    return replace(spec, backends=backends or candidates(spec))


def compiled_is_faster(arm: Arm) -> tuple[float, float]:
    return 1.0, 0.8 if arm.backend else 1.0


def blocks_are_fastest(arm: Arm) -> tuple[float, float]:
    return 1.0, 0.5 if arm.scope == "blocks" else 0.8 if arm.backend else 1.0


def labels(arms: Iterable[Arm]) -> list[str]:
    return [arm.label for arm in arms]


def test_a_stake_is_what_fair_bets_come_to_and_a_fair_coin_wins_nothing_in_the_mean() -> None:
    # After one round: the mean of 2p over p from 1/2 to 1 is 3/2, of 2 (1 - p) it is 1/2.
    assert (stake(0, 0), stake(1, 1), stake(0, 1)) == (1.0, 1.5, 0.5)
    # After two rounds that win: the mean of 4 p^2 is 7/3.
    assert stake(2, 2) == pytest.approx(7 / 3)
    mean = sum(math.comb(20, wins) * stake(wins, 20) for wins in range(21)) / 2**20
    assert mean == pytest.approx(1)


def test_settings_that_gain_are_combined() -> None:
    def speed(arm: Arm) -> tuple[float, float]:
        share = 0.8 if arm.backend else 1.0
        share *= 0.9 if arm.optimizer == "fused" else 1.0
        share *= 0.95 if arm.options.get("cpp_wrapper") else 1.0
        return 5.0 if arm.backend else 0.0, share

    track = raced(search(), speed)
    assert track.run() == "searched"
    assert track.race.best == "inductor-fused-cpp_wrapper_true"
    assert speed(track.race.finalists()[0]) == (5.0, pytest.approx(0.8 * 0.9 * 0.95))
    assert len(track.tried) < len(track.spec.candidates)


def test_a_compiler_that_only_pays_with_cuda_graphs_is_found_although_it_loses_without() -> None:
    def speed(arm: Arm) -> tuple[float, float]:
        share = {None: 1.0, "inductor": 0.7, "cudagraphs": 0.4}[arm.backend]
        replays_inductor = arm.backend == "inductor" and arm.captures_cuda_graphs
        return 5.0, 0.3 if replays_inductor else share

    track = raced(replace(on_cuda(), tune=search().tune), speed)
    assert track.run() == "searched"
    assert track.race.best == "inductor-reduce-overhead-fused"
    assert "loses" in {track.endings["inductor-fused"], track.endings["cudagraphs-fused"]}


@pytest.mark.parametrize("fused", [0.9, 1.1, None])
def test_compilers_start_with_a_fused_optimizer_until_it_fails_or_is_slower(
    fused: float | None,
) -> None:
    def speed(arm: Arm) -> tuple[float, float]:
        share = {None: 1.0, "inductor": 0.5, "cudagraphs": 0.7}[arm.backend]
        return 1.0, share * (fused or 1.0 if arm.optimizer == "fused" else 1.0)

    spec = on_cuda(
        "none:optimizer=fused",
        "inductor",
        "inductor:optimizer=fused",
        "cudagraphs",
        "cudagraphs:optimizer=fused",
    )
    track = raced(replace(spec, tune=search().tune), speed)
    if fused is None:
        track.dies = {label for label in labels(spec.candidates) if label.endswith("fused")}
    track.run()
    assert {"none-fused", "inductor-fused"} <= set(track.tried[:3])
    is_presumed = fused == 0.9
    assert track.race.best == ("inductor-fused" if is_presumed else "inductor")
    assert is_presumed == ("inductor" not in track.tried)


def test_without_a_candidate_that_is_fused_alone_compilers_are_tried_as_they_are_named() -> None:
    track = raced(on_cuda("inductor", "inductor:optimizer=fused"), compiled_is_faster)
    track.run()
    assert track.tried[0] == "inductor"


def test_equal_candidates_leave_the_training_as_it_is_and_none_is_sought_without_it() -> None:
    track = raced(search(), lambda arm: (0.0, 1.0))
    assert track.run() == "searched"
    assert (track.race.best, track.race.finalists()) == ("baseline", ())
    track = raced(search(), lambda arm: (0.0, 1.0))
    track.dies = {"baseline"}
    assert track.run() == "nothing_left"


def test_whether_compiling_pays_depends_on_the_length() -> None:
    # 10 s to compile, 2 ms saved a step: even after 5,000 steps.
    def speed(arm: Arm) -> tuple[float, float]:
        return (10.0, 0.8) if arm.backend else (0.0, 1.0)

    short, long = (
        raced(search(("inductor",), steps=steps), speed, noise=0.0) for steps in (4000, 7000)
    )
    assert short.race.most_compile_seconds() is None, "nothing is timed yet"
    short.run()
    long.run()
    assert (short.race.best, long.race.best) == ("baseline", "inductor")
    assert short.endings == {"inductor": "loses"}
    assert short.race.most_compile_seconds() == pytest.approx(4_000 * STEP)


def limited(*names: str) -> ExperimentSpec:
    """A search of 100 s, one candidate after the other."""
    spec = search(names)
    return replace(spec, tune=replace(spec.tune, max_seconds=100.0, at_once=1))


def test_a_spent_budget_starts_no_candidate_and_decides_those_that_have_compiled() -> None:
    """Then only what is worth a confirmation matters, for which a stake of 1/0.05 = 20 suffices. If
    all rounds agree, 7 rounds reach a stake of 2^8/8 = 32. Overtime is a quarter of the budget."""
    spec = limited("inductor", "inductor:scope=blocks")
    clear = raced(spec, lambda arm: (1.0, 0.5 if arm.backend else 1.0), noise=0.05)
    clear.run(max_rounds=4)
    assert clear.race.decide(clear.living, elapsed=110.0).over is not None
    assert labels(clear.race.finalists()) == clear.tried
    track = raced(spec, lambda arm: (0.0, 1.0), noise=0.05)
    track.run(max_rounds=4)
    assert len(track.tried) == 1
    assert track.race.decide(track.living, elapsed=124.9).over is None
    assert track.race.decide(track.living, elapsed=125.0).over is not None
    open_for = 0
    while (decision := track.race.decide(track.living, elapsed=110.0)).over is None:
        assert decision.joining == ()
        track.play_round()
        open_for += 1
    assert decision.over.cause == "seconds"
    assert open_for == 7 - 3  # The first of the four rounds was before the candidate joined.
    assert track.race.finalists() == ()


def test_a_candidate_that_cannot_compile_before_the_budget_ends_does_not_start() -> None:
    """`inductor-fused` compiled for 30 s, and 20 s are left, so no other compiler starts."""

    def speed(arm: Arm) -> tuple[float, float]:
        return (30.0, 0.5) if arm.backend else (0.0, 0.9 if arm.optimizer else 1.0)

    slower = "inductor:optimizer=fused+cpp_wrapper=true"
    track = raced(limited(slower, "inductor:optimizer=fused", "none:optimizer=fused"), speed)
    assert track.run(elapsed=80.0) == "seconds"
    assert track.tried == ["none-fused", "inductor-fused"]


@pytest.mark.parametrize("waiting", [("inductor:scope=forward",), ()])
def test_after_a_tenth_of_the_budget_an_undecided_candidate_makes_room_for_one_that_waits(
    waiting: tuple[str, ...],
) -> None:
    """Of two that take turns, the one with the least total stays. Both may be confirmed later."""
    spec = limited("inductor", "none:optimizer=foreach", *waiting)
    spec = replace(spec, tune=replace(spec.tune, at_once=2))

    def speed(arm: Arm) -> tuple[float, float]:
        return 0.0, 0.93 if arm.backend else 0.97 if arm.optimizer else 1.0

    track = raced(spec, speed, noise=0.05)
    assert track.run(max_rounds=12, elapsed=5.0) == "unended"
    assert (len(track.tried), track.endings) == (2, {})
    assert track.run(max_rounds=13, elapsed=14.9) == "unended"
    assert (len(track.tried), track.endings) == (2, {})
    assert track.run(max_rounds=15, elapsed=15.1) == "unended"
    assert track.endings == ({"none-foreach": "equal"} if waiting else {})
    assert len(track.tried) == 2 + len(waiting)


def test_the_smaller_a_lead_the_more_rounds_a_confirmation_needs() -> None:
    """Without noise the deviation counts as 0.01, so 12 standard errors are 0.12 after one round.
    The lead is ln(0.99) - ln(0.95) = 0.04124, and (0.12 / 0.04124)^2 = 8.47."""
    spec = search(("inductor", "inductor:scope=forward"))
    scopes = {"iteration": 0.95, "forward": 1.0}

    def speed(arm: Arm) -> tuple[float, float]:
        return 0.0, scopes[arm.scope] if arm.backend else 1.0

    track = raced(spec, speed, noise=0.0)
    track.run(max_rounds=4)
    faster, equal = spec.candidates
    assert track.race.rounds_to_confirm([faster, equal]) == pytest.approx(8.47, abs=0.005)
    assert track.race.rounds_to_confirm([equal, faster]) == math.inf


def test_no_candidate_starts_before_the_baseline_is_timed_nor_has_compiled_without_a_block() -> (
    None
):
    spec = search(("inductor",))
    race = Race(spec)
    for arm in (*spec.arms, spec.candidates[0]):
        race.add(arm)
    assert race.is_compiling("inductor") and not race.is_compiling("baseline")
    race.take("inductor", {**BLOCK, "compiled": True, "warm_up": True})
    assert not race.is_compiling("inductor")
    race = Race(spec)
    for arm in spec.arms:
        race.add(arm)
    race.take("baseline", {**BLOCK, "warm_up": True})
    assert joining(race) == []
    race.take("baseline", {**BLOCK, "round": 1})
    assert joining(race) == ["inductor"]


def test_a_fast_candidate_that_computes_wrongly_is_dropped_and_never_combined() -> None:
    track = raced(search(), blocks_are_fastest)
    track.wrong = {arm.label for arm in track.spec.candidates if arm.scope == "blocks"}
    track.run()
    tried_and_wrong = track.wrong & set(track.tried)
    assert tried_and_wrong and {track.endings[label] for label in tried_and_wrong} == {"wrong"}
    finalists = {*labels(track.race.finalists())}
    assert finalists and not finalists & track.wrong


def test_a_best_candidate_whose_losses_become_wrong_loses_its_place_to_a_correct_one() -> None:
    # The last one is as fast as the second: it keeps the race going until the fault begins.
    names = ("inductor", "inductor:scope=blocks", "inductor:scope=blocks+cpp_wrapper=true")
    track = raced(search(names), blocks_are_fastest)
    track.wrong, track.wrong_from = {"inductor-blocks"}, 50
    track.run(max_rounds=45)
    assert track.race.best == "inductor-blocks"
    track.run()
    assert track.endings["inductor-blocks"] == "wrong"
    assert labels(track.race.finalists()) == ["inductor-blocks-cpp_wrapper_true", "inductor"]


@pytest.mark.slow
@pytest.mark.heavy  # fifty simulated races: seconds
def test_the_best_candidate_is_dropped_in_few_of_many_noisy_races() -> None:
    names = ("none:optimizer=fused", "none:optimizer=foreach", "inductor")

    def speed(arm: Arm) -> tuple[float, float]:
        return 0.0, 0.97 if arm.optimizer == "fused" else 1.0

    tracks = [raced(search(names), speed, seed, noise=0.05) for seed in range(50)]
    for track in tracks:
        track.run()
    lost = sum(track.endings.get("none-fused") == "loses" for track in tracks)
    assert lost <= 50 * ERROR_RATE


def larger(*more: str) -> ExperimentSpec:
    """A search that may try larger batches, and no compiler but these."""
    spec = search()
    spec = replace(spec, tune=replace(spec.tune, allow=("batch",)))
    plain = tuple(text for text in candidates(spec) if text.startswith("none:batch_times"))
    return replace(spec, backends=(*(text for text in plain if "+" not in text), *more))


def test_a_larger_batch_wins_by_its_time_per_sample() -> None:
    """Twice the samples in 1.8 times the time gain a tenth, four times in 4.4 lose a tenth."""
    shares = {1: 1.0, 2: 0.9, 4: 1.1, 8: 1.2}
    track = raced(larger(), lambda arm: (0.0, shares[arm.batch_times]))
    assert track.run() == "searched"
    assert track.race.best == "none-batch_times_2"
    assert track.endings == {"none-batch_times_4": "loses", "none-batch_times_8": "loses"}


def test_batches_grow_while_they_gain_and_the_best_of_the_same_size_is_confirmed_too() -> None:
    def speed(arm: Arm) -> tuple[float, float]:
        return 0.0, 0.95 if arm.backend else 0.9 ** (arm.batch_times - 1)

    track = raced(larger("eager"), speed)
    track.run(max_rounds=1)
    assert track.tried == ["none-batch_times_2", "none-batch_times_4", "eager"]
    assert track.run() == "searched"
    assert labels(track.race.finalists()) == ["none-batch_times_16", "none-batch_times_8", "eager"]


def test_losses_of_a_larger_batch_are_not_those_of_the_baseline_but_must_be_finite() -> None:
    track = raced(larger("eager"), lambda arm: (0.0, 0.9 if arm.role == "backend" else 1))
    track.wrong = {*labels(track.spec.candidates)}
    track.run()
    assert [label for label, cause in track.endings.items() if cause == "wrong"] == ["eager"]
    label = track.race.best
    assert label.startswith("none-batch_times_")
    track.race.take(label, {"kind": "step", "step": 3, "loss": math.nan})
    assert track.race.decide(track.living, elapsed=0.0).dropped[label].cause == "wrong"


@pytest.mark.parametrize(("precision", "ends"), [("float32", True), ("bf16", False)])
def test_losses_are_judged_in_the_precision_in_which_a_script_computes(
    precision: str, ends: bool
) -> None:
    """The loss of 1 is off by 1e-3: ten times float32's floor of 2e-6 is less, and four times
    bf16's of 2.5e-4 is as much, of which a fault is at least twice."""
    spec = search(("eager",))
    race = Race(spec)
    for arm in (*spec.arms, *spec.candidates):
        race.add(arm)
        race.take(arm.label, {"kind": "workload", "precision": precision})
        for step in range(40):
            loss = 1.001 if arm.role == "backend" else 1.0
            race.take(arm.label, {"kind": "step", "step": step, "loss": loss})
    dropped = race.decide({"baseline", "control", "eager"}, elapsed=0.0).dropped
    assert ("eager" in dropped) == ends


def watched(spec: ExperimentSpec, utilization: float | None = None, **block: Any) -> Race:
    """A race after the baseline's first block. Compiling takes no part of the utilization."""
    race = Race(spec)
    for arm in spec.arms:
        race.add(arm)
        race.take(arm.label, {"kind": "device", "utilization": 0.01})  # before its first block
        race.take(arm.label, {"kind": "device", "round": 0, "utilization": utilization})
    race.take("baseline", {**BLOCK, **block})
    return race


def joining(race: Race, *living: str) -> list[str]:
    return labels(race.decide(["baseline", "control", *living], elapsed=1.0).joining)


@pytest.mark.parametrize(
    ("utilization", "joined"),
    [
        # The device waits for 70 % of the time: a compiler comes with CUDA graphs first.
        (0.3, ["inductor-reduce-overhead-fused", "none-fused", "cudagraphs-fused"]),
        # CUDA graphs alone can save half a percent, which does not count.
        (0.995, ["inductor-fused", "inductor-reduce-overhead-fused", "none-fused"]),
        # Nothing is known, so a step may wait all the time.
        (None, ["inductor-reduce-overhead-fused", "cudagraphs-fused", "none-fused"]),
    ],
)
def test_how_long_the_device_waits_decides_the_order_of_candidates(
    utilization: float | None, joined: list[str]
) -> None:
    assert joining(watched(on_cuda(), utilization)) == joined


def test_what_could_save_less_than_counts_or_the_script_itself_chooses_is_not_tried() -> None:
    race = watched(on_cuda("cudagraphs"), 0.995)
    assert race.decide(["baseline", "control"], elapsed=1.0).over is not None
    race = watched(on_cuda(), 0.3)
    race.take("baseline", {"kind": "workload", "fixed_settings": ["optimizer"]})
    assert joining(race) == ["inductor-reduce-overhead", "cudagraphs"]


def test_how_busy_the_device_is_with_candidates_says_nothing_of_the_baseline() -> None:
    race = watched(on_cuda(), 0.3)
    race.add(next(arm for arm in on_cuda().candidates if arm.label == "none-fused"))
    race.take("none-fused", {**BLOCK, "round": 1})
    for number in range(1, 9):
        for label in ("baseline", "none-fused"):
            race.take(label, {"kind": "device", "round": number, "utilization": 1.0})
    assert joining(race, "none-fused") == ["inductor-reduce-overhead-fused", "cudagraphs-fused"]


@pytest.mark.parametrize(
    ("loading", "joined"),
    [
        (0.09, ["none-loader_workers_8", "none-loader_workers_4", "none-loader_workers_2"]),
        # Half a percent of a step does not count.
        (0.0005, ["inductor-fused", "none-fused"]),
    ],
)
def test_processes_that_load_data_are_tried_where_steps_wait_for_data(
    loading: float, joined: list[str]
) -> None:
    spec = search(("none:optimizer=fused",), steps=1_000_000)
    source = ModelSpec(source="script:/home/me/train.py")
    spec = replace(spec, task="script", model=source, data=DataSpec(source="script"))
    spec = replace(spec, backends=candidates(spec))
    assert joining(watched(spec, loading_seconds=loading)) == joined


def test_a_setting_that_gained_without_a_compiler_is_confirmed_with_the_best_compiler() -> None:
    """The budget ends before the combination joins. Two rounds suffice for a finalist that is
    clearly ahead, and to end its rivals."""
    spec = search(
        (
            "none:optimizer=for_loop",
            "none:optimizer=foreach",
            "inductor",
            "inductor:optimizer=foreach",
        )
    )
    forms = {None: 1.0, "for_loop": 0.75, "foreach": 0.7}

    def speed(arm: Arm) -> tuple[float, float]:
        return (1.0, 0.5) if arm.backend else (0.0, forms[arm.optimizer])

    track = raced(spec, speed, noise=0.001)
    track.run(max_rounds=2)  # The candidates join after the first.
    track.play_round()
    assert set(track.tried) == {"none-foreach", "none-for_loop", "inductor"}
    assert labels(track.race.finalists()) == ["inductor", "none-foreach", "inductor-foreach"]
    combined = next(
        candidate for candidate in spec.candidates if candidate.label == "inductor-foreach"
    )
    track.race.add(combined)
    assert combined in track.race.finalists(), "the budget ended before its first block"
    track.race.take("inductor-foreach", {"kind": "error"})
    assert combined not in track.race.finalists(), "it failed to compile"


def test_a_group_adds_compilers_to_the_most_processes_that_load_data() -> None:
    """Steps wait nine tenths of their time. With two processes they still would for most of it."""
    source = ModelSpec(source="script:/home/me/train.py")
    spec = replace(
        on_cuda("none:optimizer=fused"), task="script", model=source, data=DataSpec(source="script")
    )
    spec = replace(spec, backends=candidates(spec), compile="together")
    race = Race(spec, 8)
    for arm in spec.arms:
        race.add(arm)
        race.take(arm.label, {"kind": "device", "round": 0, "utilization": 0.1})
    race.take("baseline", {**BLOCK, "loading_seconds": 0.9 * BLOCK["seconds"]})
    joined = joining(race)
    assert joined[:3] == [f"none-loader_workers_{number}" for number in (8, 4, 2)]
    compiled = [label for label in joined if not label.startswith("none")]
    families = ("inductor-reduce-overhead", "inductor", "cudagraphs")
    assert compiled[:3] == [f"{family}-fused-loader_workers_8" for family in families]


def together(
    *, steps: int = 1_000_000, at_once: int = 8, gibibytes: int = 4, utilization: float = 0.5
) -> Race:
    """A race on a GPU of 80 GiB, of which the baseline takes so much, and uses it for this share of
    a step."""
    spec = on_cuda()
    spec = replace(spec, compile="together", tune=replace(spec.tune, steps=steps, at_once=4))
    race = Race(spec, at_once)
    for arm in spec.arms:
        race.add(arm)
    race.take("baseline", {"kind": "environment", "gpu_memory_bytes": 80 * 2**30})
    race.take("baseline", {**BLOCK, "reserved_memory_bytes": gibibytes * 2**30})
    race.take("baseline", {"kind": "device", "round": 0, "utilization": utilization})
    return race


def test_candidates_that_compile_together_fill_a_group_with_neighbours_of_the_first_ones() -> None:
    graphs = "inductor-reduce-overhead"
    first = [f"{graphs}-fused", "none-fused", "cudagraphs-fused"]
    assert joining(together(at_once=1)) == first
    assert joining(together()) == [*first, f"{graphs}-forward-fused", f"{graphs}-blocks-fused"]
    # The device waits for a tenth of a step: CUDA graphs alone could save much less than Inductor.
    assert joining(together(utilization=0.9))[:3] == [
        f"{graphs}-fused",
        "inductor-fused",
        "none-fused",
    ]


def test_a_candidate_comes_after_itself_with_cuda_graphs_also_if_these_fail() -> None:
    """The device waits for half of a step. Of the first group only `none-fused` does not fail."""
    race = together()
    first = race.decide(["baseline", "control"], elapsed=1.0).joining
    for arm in first:
        race.add(arm)
    for number in range(2):
        for label in ("baseline", "none-fused"):
            race.take(label, {**BLOCK, "round": number})
    assert "inductor-fused" not in labels(first) and "inductor-fused" in joining(race, "none-fused")


def test_a_candidate_that_times_kernels_keeps_no_group_waiting_for_its_compilation() -> None:
    """It joins when the candidate without this setting is timed, not already beside it."""
    race = together()
    tuned = "coordinate_descent_tuning"
    first = race.decide(["baseline", "control"], elapsed=1.0).joining
    assert first and not any(tuned in label for label in labels(first))
    for arm in first:
        race.add(arm)
        for number in range(20):
            seconds = 0.02 if arm.label == "inductor-reduce-overhead-fused" else 0.2
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    for number in range(20):
        race.take("baseline", {**BLOCK, "round": number})
    second = race.decide(["baseline", "control", *labels(first)], elapsed=2.0).joining
    assert f"inductor-reduce-overhead-fused-{tuned}_true" in labels(second)


def test_for_a_short_training_candidates_that_compile_quickly_come_first() -> None:
    """Uncompiled steps take 4,000 * 10 ms = 40 s. The usual compile time of one layer is 10 s, of a
    forward pass 25 s, of a whole iteration 45 s, and of `cudagraphs` 15 s. So one layer could save
    30 s, and the others less than half of what the optimizer could: they join the next group. What
    compiles longer than 40 s joins it if compiling turns out to be quicker here."""
    race = together(steps=4_000)
    joined = race.decide(["baseline", "control"], elapsed=1.0).joining
    assert labels(joined) == ["none-fused", "inductor-reduce-overhead-blocks-fused"]
    quick = together(steps=4_000)
    for arm in joined:
        quick.add(arm)
        quick.take(arm.label, {**BLOCK, "seconds": 1.1, "compiled": True})
        quick.take(arm.label, {**BLOCK, "round": 1})
    assert "inductor-reduce-overhead-fused" in joining(quick)
    for arm in joined:
        race.add(arm)
    # Both failed, also the one layer, without the candidate from which it derives.
    assert race.decide(["baseline", "control"], elapsed=2.0).over is None


def test_a_group_waits_until_half_of_its_places_are_free_and_those_before_it_are_timed() -> None:
    untimed, timed = together(), together()
    for race, rounds in ((untimed, 1), (timed, 2)):
        group = race.decide(["baseline", "control"], elapsed=1.0).joining
        for arm in group:
            race.add(arm)
        for number in range(rounds):
            for label in ("baseline", *labels(group)):
                race.take(label, {**BLOCK, "round": number})
    assert not joining(untimed, *labels(group[:4]))
    assert not joining(timed, *labels(group[:5]))
    assert len(joining(timed, *labels(group[:4]))) == 4


@pytest.mark.parametrize(("gibibytes", "places"), [(4, 5), (11, 4), (17, 2), (35, 1)])
def test_no_more_candidates_race_at_once_than_fit_the_device(gibibytes: int, places: int) -> None:
    """Of 80 GiB runs may take 72. Each takes 1 GiB more than its tensors; two are no candidates."""
    assert len(joining(together(gibibytes=gibibytes))) == places


@pytest.mark.parametrize("seed", range(12))
def test_whatever_joins_together_fails_or_loses_the_search_ends_with_a_sound_answer(
    seed: int,
) -> None:
    """Groups of any size on a GPU: a third of all candidates fail, and any may be faster or slower.
    A combination that is confirmed without having been tried may fail, too."""
    chance = random.Random(seed)
    spec = search(steps=chance.choice([1_000, 20_000, 500_000]))
    tune = replace(spec.tune, at_once=chance.randint(1, 4))
    spec = replace(spec, devices=("cuda:0",), compile="together", tune=tune)
    spec = replace(spec, backends=candidates(spec))
    fate = {
        candidate.label: (chance.uniform(0, 60), chance.uniform(0.3, 1.5))
        for candidate in spec.candidates
    }

    def speed(arm: Arm) -> tuple[float, float]:
        compiling, share = fate[arm.label] if arm.role == "backend" else (0.0, 1.0)
        return compiling * (arm.backend is not None), share

    noise = Noise(block=0.02, process=0.005)
    track = Track(spec, speed, str(seed), noise, compiling_at_once=chance.randint(1, 8))
    track.dies = {label for label in fate if chance.random() < 1 / 3}
    assert track.run() == "searched"
    confirmed = {track.race.best, *labels(track.race.finalists())}
    assert not track.dies & confirmed & {*track.tried}
    assert len(track.tried) == len(set(track.tried))


@pytest.mark.parametrize(
    ("share", "rounds", "winner", "are_decided"),
    [
        (0.80, 4, "inductor", True),
        (0.815, 4, "baseline", True),
        (0.80, 3, "inductor", True),
        (0.815, 3, "baseline", True),
        (0.5, 2, "baseline", False),
    ],
)
def test_a_clear_winner_is_the_best_after_few_rounds_and_ends_what_is_slower(
    share: float, rounds: int, winner: str, *, are_decided: bool
) -> None:
    """The logarithms of three runs' ratios to the baseline differ from their means by 0.03 in turn.
    After four rounds the squares add up to 3 * 4 * 0.0009 at 9 degrees of freedom, so 6 standard
    errors are 6 * 0.0346 / 2 = 0.104; after three they are 6 * 0.03 / sqrt(3) = 0.104, too. After
    two there are only 3 degrees. With the gap of 0.1 a share must be below 0.807."""
    race, spec = Race(search(("inductor", "aot_eager"))), search(("inductor", "aot_eager"))
    shares = {"inductor": share, "aot_eager": 1.3}
    for arm in (*spec.arms, *spec.candidates):
        race.add(arm)
        for number in range(rounds):
            stray = (0.03, -0.03, 0.0 if rounds == 3 else 0.03, -0.03)[number]
            usual = 0.1 if arm.role == "baseline" else 0.1 * math.exp(stray)
            seconds = usual * shares.get(arm.label, 1.0)
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    decision = race.decide(labels([*spec.arms, *spec.candidates]), elapsed=1.0)
    assert race.best == winner
    # It takes 1.3 times as long as the baseline: log(1.3) = 0.262 is more than 0.204.
    assert set(decision.dropped) == ({"aot_eager"} if are_decided else set())


def test_blocks_that_agree_by_chance_make_no_small_difference_clear() -> None:
    """All blocks of a run are equal. The standard deviation counts as 0.01, and a share of 0.95 is
    not below 0.99 / e^(0.1 + 6 * 0.01 / 2) = 0.869."""
    race, spec = Race(search(("inductor", "aot_eager"))), search(("inductor", "aot_eager"))
    for arm in (*spec.arms, *spec.candidates):
        race.add(arm)
        for number in range(4):
            seconds = 0.1 * {"inductor": 0.95}.get(arm.label, 1.0)
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    race.decide(labels([*spec.arms, *spec.candidates]), elapsed=1.0)
    assert race.best == "baseline"


def test_a_candidate_that_lost_to_one_that_became_slow_later_can_still_be_confirmed() -> None:
    """`eager` takes half of a step in four rounds, and 1.2 of it afterwards. Until then `aot_eager`
    took 0.8; it has ended."""
    spec = search(("eager", "aot_eager"))
    race = Race(spec)
    for arm in (*spec.arms, *spec.candidates):
        race.add(arm)
        for number in range(4 if arm.label == "aot_eager" else 12):
            share = {"eager": 0.5 if number < 4 else 1.2, "aot_eager": 0.8}.get(arm.label, 1.0)
            seconds = 0.1 * share * (1.01 if number % 2 else 1.0)
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    assert labels(race.finalists()) == ["aot_eager"]


@pytest.mark.parametrize(
    ("seconds", "loading", "steps"),
    [(1.5, 0.0, 4), (40.0, 0.0, 3), (0.1, 0.0, 10), (1.5, 0.1, None)],
)
def test_blocks_of_slow_steps_are_short_unless_steps_wait_for_data(
    seconds: float, loading: float, steps: int | None
) -> None:
    """A block of 10 steps takes `seconds`: 0.5 s are 4 steps of 0.15 s, at least 3, at most 10."""
    race, spec = Race(search(("inductor",))), search(("inductor",))
    for arm in spec.arms:
        race.add(arm)
    assert race.block_steps is None
    race.take("baseline", {**BLOCK, "seconds": 100.0, "compiled": True})
    assert race.block_steps is None
    race.take("baseline", {**BLOCK, "seconds": seconds, "warm_up": True})
    assert race.block_steps == (steps or 4), "the warm-up says how long steps are, about"
    race.take("baseline", {**BLOCK, "seconds": seconds, "loading_seconds": seconds * loading})
    assert race.block_steps == steps


@pytest.mark.parametrize(("share", "is_confirmed"), [(0.8, True), (0.95, False)])
def test_few_rounds_suffice_for_a_finalist_that_is_far_ahead(
    share: float, is_confirmed: bool
) -> None:
    """The control is as fast as the baseline in each round. The logarithms of a candidate's ratios
    differ from their mean by +0.048, -0.047 and -0.001: at 4 degrees of freedom 4 standard errors
    are 4 * 0.0337 / sqrt(3) = 0.078, and with the gap of 0.05 its share must be below 0.871. Steps
    of 0.080 s are a share of 0.762, those of 0.095 s one of 0.905."""
    spec = search(("inductor",))
    race = Race(spec)
    for arm in (*spec.arms, *spec.candidates):
        race.add(arm)
        for number, usual in enumerate((0.100, 0.110, 0.105)):
            seconds = 0.1 * share if arm.role == "backend" else usual
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    assert labels(race.finalists()) == (["inductor"] if is_confirmed else [])


def test_the_finalists_are_the_two_best_of_different_kinds() -> None:
    """The second best under the same compiler is no finalist, nor the third kind."""

    def speed(arm: Arm) -> tuple[float, float]:
        share = {"inductor": 0.6, "cudagraphs": 0.7, None: 1.0}[arm.backend]
        return 1.0 if arm.backend else 0.0, share * (0.9 if arm.optimizer else 1.0)

    names = ("inductor", "inductor:optimizer=fused", "none:optimizer=fused", "cudagraphs")
    track = raced(on_cuda(*names), speed)
    track.run()
    assert labels(track.race.finalists()) == ["inductor-fused", "cudagraphs"]


def test_what_is_about_to_win_is_combined_before_it_has_surely_won() -> None:
    """One form of the optimizer has surely won, the other takes half of its time, but in too noisy
    rounds for a decision. The next candidate has the other form."""
    spec = search(
        (
            "none:optimizer=foreach",
            "none:optimizer=fused",
            "inductor:optimizer=foreach",
            "inductor:optimizer=fused",
        )
    )
    race = Race(replace(spec, tune=replace(spec.tune, at_once=2)))
    for arm in (*spec.arms, *spec.candidates[:2]):
        race.add(arm)
        for number in range(4):
            noisy = 0.04 if number == 3 else 0.01
            seconds = {"none-foreach": 0.02, "none-fused": noisy}.get(arm.label, 0.1)
            race.take(arm.label, {**BLOCK, "round": number, "seconds": seconds})
    joined = race.decide(labels([*spec.arms, *spec.candidates[:2]]), elapsed=1.0).joining
    assert race.best == "none-foreach"
    assert labels(joined) == ["inductor-fused"]


def test_only_the_baseline_and_the_best_are_profiled_when_a_search_ends() -> None:
    over = Ending(cause="seconds", target_width=0.1, budget=9.0)
    lost = Ending(cause="loses", target_width=0.1, budget=9.0, to="inductor")
    decision = Decision(over=over, dropped={"eager": lost}, profiled=("baseline", "inductor"))
    endings = {
        label: decision.ending(label)
        for label in ("baseline", "control", "inductor", "aot_eager", "eager")
    }
    assert {label for label, ending in endings.items() if ending and ending.is_profiled} == {
        "baseline",
        "inductor",
    }
    assert endings["eager"] is not None and endings["eager"].cause == "loses"
    assert Decision(dropped={"eager": lost}).ending("inductor") is None
