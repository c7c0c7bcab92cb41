"""A search drops what loses, combines what gains, and leaves alone what is equal."""

import math
import random
from dataclasses import replace

import pytest

from benchmarks.search_trials import Noise, Speed, Track, search
from breakeven.runner.specs.candidates import candidates, difference
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.supervision.search import ERROR_RATE, Race, stake

STEP = 0.01
"""Seconds of the baseline's steps."""


def raced(spec: ExperimentSpec, speed: Speed, seed: int = 0, noise: float = 0.01) -> Track:
    return Track(spec, speed, str(seed), Noise(block=noise))


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

    track = raced(search(), speed)
    assert track.run() == "searched"
    assert track.race.best == "inductor-fused-cpp_wrapper_true"
    assert track.race.finalists()[0].label == track.race.best
    assert len(track.tried) < len(track.spec.candidates)


def test_a_compiler_that_only_pays_with_cuda_graphs_is_found_although_it_loses_without() -> None:
    on_cuda = replace(search(), devices=("cuda:0",))
    on_cuda = replace(on_cuda, backends=candidates(on_cuda))

    def speed(variant: Variant) -> tuple[float, float]:
        share = {None: 1.0, "inductor": 0.7, "cudagraphs": 0.4}[variant.backend]
        replays_inductor = variant.backend == "inductor" and variant.captures_cuda_graphs
        return 5.0, 0.3 if replays_inductor else share

    track = raced(on_cuda, speed)
    assert track.run() == "searched"
    assert track.race.best == "inductor-reduce-overhead"
    assert "loses" in {track.endings["inductor"], track.endings["cudagraphs"]}


def test_equal_candidates_leave_the_training_as_it_is() -> None:
    track = raced(search(), lambda variant: (0.0, 1.0))
    assert track.run() == "searched"
    assert (track.race.best, track.race.finalists()) == ("baseline", ())


def test_whether_compiling_pays_depends_on_the_length() -> None:
    # 10 s to compile, 2 ms saved a step: even after 5,000 steps.
    def speed(variant: Variant) -> tuple[float, float]:
        return (10.0, 0.8) if variant.backend else (0.0, 1.0)

    short = raced(search(("inductor",), steps=4_000), speed)
    long = raced(search(("inductor",), steps=7_000), speed)
    short.run()
    long.run()
    assert (short.race.best, long.race.best) == ("baseline", "inductor")
    assert short.endings == {"inductor": "loses"}


def test_a_candidate_may_not_compile_longer_than_the_best_takes_in_all() -> None:
    track = raced(search(("inductor",), steps=4_000), lambda variant: (0.0, 1.0), noise=0.0)
    assert track.race.most_compile_seconds() is None  # Nothing is timed yet.
    track.run(max_rounds=1)
    assert track.race.most_compile_seconds() == pytest.approx(4_000 * STEP)


def test_a_spent_budget_starts_no_candidate_and_decides_those_that_have_compiled() -> None:
    """Among two candidates a stake of 2/0.05 = 40 decides. If all rounds agree, 7 rounds reach a
    stake of 2^8/8 = 32, and 8 rounds reach 2^9/9 = 57."""
    spec = search(("inductor", "inductor:scope=blocks"))
    spec = replace(spec, tune=replace(spec.tune, max_seconds=100.0, at_once=1))
    track = raced(spec, lambda variant: (1.0, 0.8 if variant.backend else 1.0), noise=0.0)
    track.run(max_rounds=4)
    assert len(track.tried) == 1 and not track.race.finalists()
    open_for = 0
    while (decision := track.race.decide(track.living, elapsed=110.0)).over is None:
        assert decision.joining == ()
        track.play_round()
        open_for += 1
    assert decision.over.cause == "seconds"
    assert open_for == 8 - 3  # The first of the four rounds was before the candidate joined.
    assert [one.label for one in track.race.finalists()] == track.tried


def test_overtime_is_a_quarter_of_the_budget() -> None:
    spec = search(("inductor",))
    spec = replace(spec, tune=replace(spec.tune, max_seconds=100.0))
    track = raced(spec, lambda variant: (1.0, 0.8 if variant.backend else 1.0))
    track.run(max_rounds=3)
    assert track.race.decide(track.living, elapsed=124.9).over is None
    assert track.race.decide(track.living, elapsed=125.0).over is not None


def test_a_candidate_counts_as_compiling_until_its_first_block_of_any_kind_ends() -> None:
    spec = search(("inductor",))
    race = Race(spec)
    race.add(spec.candidates[0])
    assert race.is_compiling("inductor")
    block = {"kind": "block", "round": 0, "seconds": 1.0, "num_steps": 10, "compiled": True}
    race.take("inductor", {**block, "warm_up": True})
    assert not race.is_compiling("inductor")


def test_no_candidate_starts_before_the_baseline_is_timed() -> None:
    spec = search(("inductor",))
    race = Race(spec)
    for variant in spec.variants:
        race.add(variant)
    living = [variant.label for variant in spec.variants]
    block = {"kind": "block", "round": 0, "seconds": 1.0, "num_steps": 10, "compiled": False}
    race.take("baseline", {**block, "warm_up": True})
    assert race.decide(living, elapsed=1.0).joining == ()
    race.take("baseline", {**block, "round": 1})
    assert [one.label for one in race.decide(living, elapsed=1.0).joining] == ["inductor"]


def test_a_fast_candidate_that_computes_wrongly_is_dropped_and_never_combined() -> None:
    def speed(variant: Variant) -> tuple[float, float]:
        return 1.0, 0.5 if variant.scope == "blocks" else 0.8 if variant.backend else 1.0

    track = raced(search(), speed)
    track.wrong = {one.label for one in track.spec.candidates if one.scope == "blocks"}
    track.run()
    wrong = track.wrong & set(track.tried)
    assert {track.endings[label] for label in wrong} == {"wrong"}
    assert len(wrong) == 1
    assert not {one.label for one in track.race.finalists()} & track.wrong


def test_a_best_candidate_whose_losses_become_wrong_loses_its_place_to_a_correct_one() -> None:
    def speed(variant: Variant) -> tuple[float, float]:
        return 1.0, 0.5 if variant.scope == "blocks" else 0.8 if variant.backend else 1.0

    # The last one is as fast as the second: it keeps the race going until the fault begins.
    names = ("inductor", "inductor:scope=blocks", "inductor:scope=blocks+cpp_wrapper=true")
    track = raced(search(names), speed)
    track.wrong, track.wrong_from = {"inductor-blocks"}, 50
    track.run(max_rounds=45)
    assert track.race.best == "inductor-blocks"
    track.run()
    assert track.endings["inductor-blocks"] == "wrong"
    found = [one.label for one in track.race.finalists()]
    assert found == ["inductor-blocks-cpp_wrapper_true", "inductor"]


def test_a_candidate_that_fails_gives_its_place_back() -> None:
    track = raced(search(), lambda variant: (1.0, 0.8 if variant.backend else 1.0))
    track.dies = {one.label for one in track.spec.candidates if one.backend}
    assert track.run() == "searched"
    assert track.race.best == "baseline"


def test_only_neighbours_of_the_best_are_tried() -> None:
    track = raced(search(), lambda variant: (0.0, 1.0))
    track.run(max_rounds=1)
    baseline = track.spec.variants[0]
    known = {one.label: one for one in track.spec.candidates}
    assert track.tried
    assert all(len(difference(known[label], baseline)) == 1 for label in track.tried)


def test_the_search_ends_without_a_baseline() -> None:
    track = raced(search(), lambda variant: (0.0, 1.0))
    track.dies = {"baseline"}
    assert track.run() == "nothing_left"


def test_the_best_candidate_is_dropped_in_few_of_many_noisy_races() -> None:
    names = ("none:optimizer=fused", "none:optimizer=foreach", "inductor")

    def speed(variant: Variant) -> tuple[float, float]:
        return 0.0, 0.97 if variant.optimizer == "fused" else 1.0

    lost = 0
    for seed in range(50):
        track = raced(search(names), speed, seed, noise=0.05)
        track.run()
        lost += track.endings.get("none-fused") == "loses"
    assert lost <= 50 * ERROR_RATE


def larger(*more: str) -> ExperimentSpec:
    """A search that may try larger batches, and no compiler."""
    spec = search()
    spec = replace(spec, tune=replace(spec.tune, allow=("batch",)))
    plain = tuple(one for one in candidates(spec) if one.startswith("none:batch_times"))
    return replace(spec, backends=(*(one for one in plain if "+" not in one), *more))


def test_a_larger_batch_wins_by_its_time_per_sample() -> None:
    """Twice the samples in 1.8 times the time gain a tenth, four times in 4.4 lose a tenth."""
    shares = {1: 1.0, 2: 0.9, 4: 1.1, 8: 1.2}
    track = raced(larger(), lambda variant: (0.0, shares[variant.batch_times]))
    assert track.run() == "searched"
    assert track.race.best == "none-batch_times_2"
    assert track.endings == {"none-batch_times_4": "loses", "none-batch_times_8": "loses"}


def test_batches_grow_while_they_gain() -> None:
    track = raced(larger(), lambda variant: (0.0, 0.9 ** (variant.batch_times - 1)))
    track.run(max_rounds=1)
    assert track.tried == ["none-batch_times_2", "none-batch_times_4"]
    assert track.run() == "searched"
    assert track.race.best == "none-batch_times_16"


def test_losses_of_a_larger_batch_are_not_those_of_the_baseline_but_must_be_finite() -> None:
    track = raced(larger("eager"), lambda variant: (0.0, 0.9 if variant.role == "backend" else 1))
    track.wrong = {one.label for one in track.spec.candidates}
    track.run()
    assert [label for label, cause in track.endings.items() if cause == "wrong"] == ["eager"]
    assert track.race.best.startswith("none-batch_times_")
    label = track.race.best
    track.race.take(label, {"kind": "step", "step": 3, "loss": math.nan})
    assert track.race.decide(track.living, elapsed=0.0).dropped[label].cause == "wrong"


def test_the_best_training_in_batches_of_the_same_size_is_confirmed_too() -> None:
    def speed(variant: Variant) -> tuple[float, float]:
        return 0.0, 0.95 if variant.backend else 0.9 ** (variant.batch_times - 1)

    track = raced(larger("eager"), speed)
    track.run()
    found = [one.label for one in track.race.finalists()]
    assert found == ["none-batch_times_16", "none-batch_times_8", "eager"]


@pytest.mark.parametrize(("precision", "ends"), [("float32", True), ("bf16", False)])
def test_losses_are_judged_in_the_precision_in_which_a_script_computes(
    precision: str, ends: bool
) -> None:
    """The loss of 1 is off by 1e-3: ten times float32's floor of 2e-6 is less, and four times
    bf16's of 2.5e-4 is as much, of which a fault is at least twice."""
    spec = search(("eager",))
    race = Race(spec)
    for variant in (*spec.variants, *spec.candidates):
        race.add(variant)
        race.take(variant.label, {"kind": "workload", "precision": precision})
        for step in range(40):
            loss = 1.001 if variant.role == "backend" else 1.0
            race.take(variant.label, {"kind": "step", "step": step, "loss": loss})
    dropped = race.decide({"baseline", "control", "eager"}, elapsed=0.0).dropped
    assert ("eager" in dropped) == ends


def watched_race(utilization: float | None) -> Race:
    """A race on a GPU with this utilization in the first blocks. Compiling takes no part of it."""
    spec = replace(search(steps=1_000_000), devices=("cuda:0",))
    race = Race(replace(spec, backends=candidates(spec)))
    for variant in spec.variants:
        race.add(variant)
        race.take(variant.label, {"kind": "device", "utilization": 0.01})  # before its first block
        race.take(variant.label, {"kind": "device", "round": 0, "utilization": utilization})
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False}
    race.take("baseline", {**block, "round": 0})
    return race


def joining(race: Race) -> list[str]:
    return [one.label for one in race.decide(["baseline", "control"], elapsed=1.0).joining]


@pytest.mark.parametrize(
    ("utilization", "joined"),
    [
        # The device waits for 70 % of the time: CUDA graphs come first.
        (0.3, ["inductor-reduce-overhead", "inductor", "none-fused"]),
        # CUDA graphs alone can save half a percent, which does not count.
        (0.995, ["inductor", "inductor-reduce-overhead", "none-fused"]),
        # Nothing is known, so a step may wait all the time.
        (None, ["inductor-reduce-overhead", "cudagraphs", "inductor"]),
    ],
)
def test_how_long_the_device_waits_decides_the_order_of_candidates(
    utilization: float | None, joined: list[str]
) -> None:
    assert joining(watched_race(utilization)) == joined


def test_a_change_that_could_save_less_than_counts_is_not_tried() -> None:
    spec = replace(watched_race(0.995)._spec, backends=("cudagraphs",))
    race = Race(spec)
    for variant in spec.variants:
        race.add(variant)
    race.take("control", {"kind": "device", "round": 0, "utilization": 0.995})
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False}
    race.take("baseline", {**block, "round": 0})
    assert race.decide(["baseline", "control"], elapsed=1.0).over is not None


@pytest.mark.parametrize(
    ("loading", "joined"),
    [
        (0.08, ["none-loader_workers_2", "none-loader_workers_4", "none-loader_workers_8"]),
        # Half a percent of a step does not count.
        (0.0005, ["inductor", "none-fused"]),
    ],
)
def test_processes_that_load_data_are_tried_where_steps_wait_for_data(
    loading: float, joined: list[str]
) -> None:
    spec = search(("none:optimizer=fused",), steps=1_000_000)
    source = ModelSpec(source="script:/home/me/train.py")
    spec = replace(spec, task="script", model=source, data=DataSpec(source="script"))
    race = Race(replace(spec, backends=candidates(spec)))
    for variant in spec.variants:
        race.add(variant)
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False, "round": 0}
    race.take("baseline", {**block, "loading_seconds": loading})
    assert joining(race) == joined


def test_a_setting_that_gained_without_a_compiler_is_confirmed_with_the_best_compiler() -> None:
    """The budget ends before the combination joins. Nine rounds decide among five candidates
    (2^10/10 > 5/0.05), and eight suffice for a finalist (2^8/9 > 1/0.05)."""
    spec = search(("none:optimizer=fused", "none:optimizer=foreach", "inductor",
                   "inductor:optimizer=fused", "inductor:optimizer=foreach"))  # fmt: skip
    forms = {None: 1.0, "foreach": 0.95, "fused": 0.9}

    def speed(variant: Variant) -> tuple[float, float]:
        return (1.0, 0.5) if variant.backend else (0.0, forms[variant.optimizer])

    track = raced(spec, speed, noise=0.001)
    track.run(max_rounds=9)  # The candidates join after the first.
    assert set(track.tried) == {"none-foreach", "none-fused", "inductor"}
    names = [one.label for one in track.race.finalists()]
    assert names == ["inductor", "none-fused", "inductor-fused"]
    combined = next(one for one in spec.candidates if one.label == "inductor-fused")
    track.race.add(combined)
    assert combined in track.race.finalists(), "the budget ended before its first block"
    track.race.take("inductor-fused", {"kind": "error"})
    assert combined not in track.race.finalists(), "it failed to compile"


def test_a_candidate_may_end_although_the_one_it_derives_from_never_joined() -> None:
    race = together(at_once=8, steps=4_000)
    joined = race.decide(["baseline", "control"], elapsed=1.0).joining
    labels = {one.label for one in joined}
    assert "inductor-blocks" in labels and "inductor" not in labels
    for variant in joined:
        race.add(variant)
    assert race.decide(["baseline", "control"], elapsed=2.0).over is None  # All of them failed.


def test_what_the_script_itself_chooses_is_not_tried() -> None:
    race = watched_race(0.3)
    race.take("baseline", {"kind": "workload", "fixed_settings": ["optimizer"]})
    assert joining(race) == ["inductor-reduce-overhead", "inductor", "cudagraphs"]


def together(*, at_once: int, steps: int = 1_000_000) -> Race:
    """A race on a GPU of 80 GiB whose baseline takes 4 GiB and waits for half of its step."""
    spec = replace(search(steps=steps), devices=("cuda:0",), compile="together")
    spec = replace(spec, tune=replace(spec.tune, at_once=4))
    race = Race(replace(spec, backends=candidates(spec)), at_once)
    for variant in spec.variants:
        race.add(variant)
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False}
    race.take("baseline", {"kind": "environment", "gpu_memory_bytes": 80 * 2**30})
    race.take("baseline", {**block, "round": 0, "reserved_memory_bytes": 4 * 2**30})
    race.take("baseline", {"kind": "device", "round": 0, "utilization": 0.5})
    return race


def test_candidates_that_compile_together_fill_a_group_with_neighbours_of_the_first_ones() -> None:
    first = ["inductor-reduce-overhead", "inductor", "none-fused", "cudagraphs"]
    assert joining(together(at_once=1)) == first
    graphs = "inductor-reduce-overhead"
    assert joining(together(at_once=8)) == [
        *first, f"{graphs}-forward", f"{graphs}-blocks",
        f"{graphs}-coordinate_descent_tuning_true", f"{graphs}-fused",
    ]  # fmt: skip


def test_for_a_short_training_candidates_that_compile_quickly_come_first() -> None:
    """Uncompiled steps take 4,000 * 10 ms = 40 s. The usual compile time of one layer is 10 s, of a
    forward pass 25 s, of a whole iteration 45 s, and of `cudagraphs` 15 s."""
    assert joining(together(at_once=8, steps=4_000)) == [
        "none-fused", "cudagraphs", "inductor-reduce-overhead-blocks", "inductor-blocks",
        "cudagraphs-fused", "inductor-reduce-overhead-forward", "inductor-forward",
        "inductor-reduce-overhead",
    ]  # fmt: skip


def test_a_group_waits_until_half_of_its_places_are_free() -> None:
    race = together(at_once=8)
    group = race.decide(["baseline", "control"], elapsed=1.0).joining
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False, "round": 0}
    for variant in group:
        race.add(variant)
        race.take(variant.label, block)
    labels = [one.label for one in group]
    assert not race.decide(["baseline", "control", *labels[:5]], elapsed=2.0).joining
    assert len(race.decide(["baseline", "control", *labels[:4]], elapsed=3.0).joining) == 4


@pytest.mark.parametrize(("gibibytes", "places"), [(4, 8), (9, 5), (17, 2), (35, 1)])
def test_no_more_candidates_race_at_once_than_fit_the_device(gibibytes: int, places: int) -> None:
    """Of 80 GiB runs may take 72. Each takes 1 GiB more than its tensors; two are no candidates."""
    race = together(at_once=8)
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False, "round": 1}
    race.take("baseline", {**block, "reserved_memory_bytes": gibibytes * 2**30})
    assert len(joining(race)) == places


def test_a_candidate_that_cannot_compile_before_the_budget_ends_does_not_start() -> None:
    """`inductor-fused` compiled for 30 s, and 20 s are left, so `inductor` does not start."""
    names = ("inductor", "inductor:optimizer=fused", "none:optimizer=fused")
    spec = search(names)
    spec = replace(spec, tune=replace(spec.tune, max_seconds=100.0, at_once=1))

    def speed(variant: Variant) -> tuple[float, float]:
        return (30.0, 0.5) if variant.backend else (0.0, 0.9 if variant.optimizer else 1.0)

    track = raced(spec, speed)
    assert track.run(elapsed=80.0) == "seconds"
    assert track.tried == ["none-fused", "inductor-fused"]


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
    fate = {one.label: (chance.uniform(0, 60), chance.uniform(0.3, 1.5)) for one in spec.candidates}

    def speed(variant: Variant) -> tuple[float, float]:
        compiling, share = fate[variant.label] if variant.role == "backend" else (0.0, 1.0)
        return compiling * (variant.backend is not None), share

    noise = Noise(block=0.02, process=0.005)
    track = Track(spec, speed, str(seed), noise, compiling_at_once=chance.randint(1, 8))
    track.dies = {label for label in fate if chance.random() < 1 / 3}
    assert track.run() == "searched"
    confirmed = {track.race.best, *(one.label for one in track.race.finalists())}
    assert not track.dies & confirmed & {*track.tried}
    assert len(track.tried) == len(set(track.tried))


def test_the_finalists_are_the_two_best_of_different_kinds() -> None:
    """The second best under the same compiler is no finalist, nor the third kind."""
    on_cuda = replace(search(), devices=("cuda:0",))
    names = ("inductor", "inductor:optimizer=fused", "none:optimizer=fused", "cudagraphs")

    def speed(variant: Variant) -> tuple[float, float]:
        share = {"inductor": 0.6, "cudagraphs": 0.7, None: 1.0}[variant.backend]
        return 1.0 if variant.backend else 0.0, share * (0.9 if variant.optimizer else 1.0)

    track = raced(replace(on_cuda, backends=names), speed)
    track.run()
    found = [one.label for one in track.race.finalists()]
    assert found == ["inductor-fused", "cudagraphs"]


def test_how_busy_the_device_is_with_candidates_says_nothing_of_the_baseline() -> None:
    race = watched_race(0.3)
    (candidate, *_) = (one for one in race._spec.candidates if one.label == "none-fused")
    race.add(candidate)
    block = {"kind": "block", "seconds": 0.1, "num_steps": 10, "compiled": False, "round": 1}
    race.take("none-fused", block)
    for number in range(1, 9):
        event = {"kind": "device", "round": number, "utilization": 1.0}
        race.take("baseline", event)
        race.take("none-fused", event)
    living = ["baseline", "control", "none-fused"]
    assert [one.label for one in race.decide(living, elapsed=1.0).joining] == [
        "inductor-reduce-overhead", "inductor",
    ]  # fmt: skip
