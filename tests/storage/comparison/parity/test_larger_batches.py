"""Runs with larger batches: judged by time per sample, and not by the baseline's losses."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.storage import queries
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import plan
from breakeven.storage.comparison.results import Comparison, standings
from breakeven.storage.exchange.benchmark_formats import rows
from breakeven.storage.index.store import Store
from breakeven.storage.library.summary import summarize
from breakeven.storage.profile.explanation import explain
from breakeven.storage.words.answer_sentence import plan_details
from breakeven.storage.words.parity import parity_text, parity_words
from breakeven.views.charts import speed
from breakeven.views.comparison.headline import evidence
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses

TWICE, FOURFOLD, BOTH = "inductor-batch_times_2", "none-batch_times_4", "inductor-batch_times_4"
GEMM = {"name": "gemm", "op": "aten::mm", "seconds": 0.1}


def begun(data_dir: DataDir, spec: ExperimentSpec, label: str, times: int) -> Recording:
    steps = spec.num_steps // times
    return (
        Recording(data_dir.runs, label, spec)
        .claim()
        .start(samples_per_step=8 * times, num_steps=steps, steps_per_epoch=steps)
    )


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A step of 8 samples takes 0.2 s and 10 J, one of 16 samples 0.32 s and 12 J after 4 s of
    compiling, one of 32 samples 0.4 s, and 0.2 s after 10 s of compiling. Turns have 10, 5, 2 and
    one step. The larger batches have other losses."""
    data_dir = DataDir(tmp_path_factory.mktemp("larger"))
    spec = experiment_spec(
        num_steps=240,
        backends=("inductor:batch_times=2", "none:batch_times=4", "inductor:batch_times=4"),
    )
    for label, times, size, seconds, joules, compiling in (
        ("baseline", 1, 10, 0.2, 10.0, 0.0),
        ("control", 1, 10, 0.2, 10.0, 0.0),
        (TWICE, 2, 5, 0.32, 12.0, 4.0),
        (FOURFOLD, 4, 2, 0.4, 0.0, 0.0),
        (BOTH, 4, 1, 0.2, 0.0, 10.0),
    ):
        run = begun(data_dir, spec, label, times)
        for number in range(24):
            took = [seconds] * size
            compiles = compiling > 0 and number == 0
            took[0] += compiling * compiles
            losses = falling_losses(240)[::times][10 // times * number :][:size]
            losses = [loss + 0.004 * (times > 1) for loss in losses]
            run.block(took, losses, compiled=[0] if compiles else ())
            if joules:
                run.device(energy_joules=joules * size)
        run.profile([GEMM]).end()
    with Store.in_memory(data_dir) as opened:
        yield opened


@pytest.fixture(scope="module")
def comparison(store: Store) -> Comparison:
    return compare(store, EXPERIMENT_ID)


def test_a_speedup_compares_the_times_of_as_many_samples(comparison: Comparison) -> None:
    results = {result.label: result for result in comparison.results}
    # 0.2 s for 8 samples against 0.16 s and 0.1 s, also where turns differ in samples: 80, 64.
    speedups = {label: results[label].speedup for label in (TWICE, FOURFOLD)}
    assert {label: result and result.median for label, result in speedups.items()} == pytest.approx(
        {TWICE: 1.25, FOURFOLD: 2.0}
    )
    assert results[TWICE].measured.step_seconds == pytest.approx(0.32)
    assert results[TWICE].measured.samples_per_second == pytest.approx(50)
    assert {results[label].speed_verdict for label in speedups} == {"faster"}
    # 4 s at a gain of 0.04 s for 8 samples; an epoch has 240 steps of 8 samples.
    pays = results[TWICE].break_even
    assert (pays.steps, pays.epochs) == (pytest.approx(100), pytest.approx(100 / 240))


def test_the_plan_is_one_of_samples(comparison: Comparison) -> None:
    planned = plan(comparison, 1000)
    assert planned.totals == pytest.approx(
        {"baseline": 200, "control": 200, TWICE: 4 + 160, FOURFOLD: 100, BOTH: 10 + 50}
    )
    assert planned.joules == pytest.approx({"baseline": 10_000, "control": 10_000, TWICE: 6000})
    # The others take less, but it is open whether they are as good.
    assert (planned.best.label, planned.rival.label) == (TWICE, BOTH)
    # 4 s at a gain of 0.04 s for 8 samples.
    assert [
        (choice.label, choice.from_steps, choice.low, choice.high) for choice in planned.choices
    ] == [
        (None, 0, None, None),
        (TWICE, *[pytest.approx(100)] * 3),
    ]


def test_losses_are_not_judged_step_by_step(comparison: Comparison) -> None:
    """The fourfold batch ended after 48 of 60 steps. The losses of the twofold one are higher by
    0.006, less than 1 % of the loss at the end: 0.004, and 0.002 from means over two steps."""
    results = {result.label: result for result in comparison.results}
    parity = results[FOURFOLD].parity
    assert (parity.verdict, results[TWICE].parity.verdict) == ("not decided", "as good")
    assert "its steps have 4 times as many samples, 32 samples instead of 8" in str(
        parity_words(parity)
    )
    planned = plan(comparison, 1000)
    said = plan_details(planned, Prices())
    assert "ts steps have 2 times as many samples, 16 samples instead of 8" in said
    assert "learns the same" not in evidence(comparison, planned) + said
    assert results["control"].training_loss_excess is not None
    assert results[TWICE].training_loss_excess is None
    assert not {warning.kind for warning in comparison.warnings} & {
        "different setting",
        "different lengths",
        "different sizes",
        "few rounds",
    }


LARGE, LARGER = "none-batch_times_2", "none-batch_times_4"


def evaluated(
    data_dir: DataDir, outcomes: dict[str, dict[str, Any]], goes_on: str = ""
) -> Comparison:
    """An experiment of steps of 0.2 s, whatever their samples, with evaluations of 200 samples.
    The run `goes_on` trains further after its evaluation."""
    spec = experiment_spec(num_steps=80, backends=("none:batch_times=2", "none:batch_times=4"))
    for label, times in (("baseline", 1), ("control", 1), (LARGE, 2), (LARGER, 4)):
        run = begun(data_dir, spec, label, times)
        losses = falling_losses(80)[::times]
        for number in range(10):
            size = 8 // times
            run.block([0.2] * size, losses[number * size :][:size])
        run.evaluation(num_samples=200, **(outcomes.get(label) or outcomes["baseline"]))
        if label == goes_on:
            run.claim(ProcessIdentity.from_pid(os.getpid()))
        else:
            run.end()
    with Store.in_memory(data_dir) as store:
        return compare(store, EXPERIMENT_ID)


@pytest.mark.parametrize(
    ("equal", "large", "larger", "worse"),
    [
        # 3 sqrt(2 x 0.935 x 0.065 / 200) = 0.074, and a twentieth of 94 % is less.
        (
            {"accuracy": 0.94, "loss": 1.0},
            {"accuracy": 0.88, "loss": 1.001},
            {"accuracy": 0.86, "loss": 1.001},
            "accuracy is 86.0 % instead of 94.0 %",
        ),
        # Steps of one loss; the last eight of 80 fall by 0.09.
        (
            {"accuracy": None, "loss": 1.0},
            {"accuracy": None, "loss": 0.9},
            {"accuracy": None, "loss": 1.06},
            "loss is 1.060 instead of 1.000",
        ),
        (
            {"accuracy": None, "loss": 1.0},
            {"accuracy": None, "loss": 0.2},
            {"accuracy": None, "loss": math.nan},
            "loss is NaN instead of 1.000",
        ),
    ],
)
def test_a_larger_batch_that_surely_learned_less_from_as_many_samples_does_not_count(
    data_dir: DataDir,
    equal: dict[str, Any],
    large: dict[str, Any],
    larger: dict[str, Any],
    worse: str,
) -> None:
    comparison = evaluated(data_dir, {"baseline": equal, LARGE: large, LARGER: larger})
    assert [result.label for result in standings(comparison).counted] == [LARGE]
    assert [result.label for result in standings(comparison).broken] == [LARGER]
    planned = plan(comparison, 1000)
    assert planned.answer.kind == "not decided" and planned.answer.reason == "outcome"
    assert planned.best is None and planned.subject.label == LARGE
    assert "It has 1/2 of the steps" in plan_details(planned, Prices())
    parity = comparison.result_of(LARGER).parity
    expected = "worse" if "NaN" in worse else "not decided"  # beside a single control
    assert parity.verdict == parity_text(parity) == expected
    assert not comparison.result_of(LARGE).is_wrong
    assert worse in str(parity_words(parity))
    shown = evidence(comparison, planned)
    assert f"**{LARGER}** does not count: its steps have 4 times" in shown.replace("\\", "")


def test_the_library_names_no_larger_batch_that_learned_less(data_dir: DataDir) -> None:
    """The larger one is the fastest; what counts takes as long as the baseline or longer. An
    evaluation in the middle is not compared."""
    outcomes = {"baseline": {"accuracy": 0.94}, LARGER: {"accuracy": 0.2}}
    goes_on = evaluated(DataDir(data_dir.path / "goes-on"), outcomes, goes_on=LARGER)
    assert goes_on.result_of(LARGER).state == RunState.RUNNING
    assert not standings(goes_on).broken
    evaluated(data_dir, outcomes)
    with Store.in_memory(data_dir) as store:
        summary = summarize(store, EXPERIMENT_ID)
    assert [backend.is_wrong for backend in summary.backends] == [False, True]
    slower = replace(summary.backends[0], speedup=0.9)
    unsure = replace(summary, leading=None, backends=(summary.backends[1], slower))
    assert unsure.best == slower


def test_lines_of_the_chart_end_where_the_samples_do(store: Store, comparison: Comparison) -> None:
    times = queries.cumulative_times(store, EXPERIMENT_ID)
    figure = speed.cumulative(times, comparison.results)
    ends = {
        line.name.partition(":")[0]: max(line.x)
        for line in figure.data
        if line.line.dash == speed.MEASURED["dash"]
    }
    # 240 steps of 8 samples, 120 of 16, 48 and 24 of 32.
    assert ends == {"baseline": 240, "control": 240, TWICE: 240, FOURFOLD: 192, BOTH: 96}


def test_kernels_of_other_sizes_explain_no_difference(store: Store) -> None:
    explanation = explain(store, EXPERIMENT_ID)
    assert explanation.profile_of(TWICE).is_known
    assert not explanation.bridges and not explanation.own_speedups


def test_an_export_has_each_runs_own_batch(store: Store) -> None:
    row_by_tag = {row["tag"]: row for row in rows(store, EXPERIMENT_ID)}
    assert {label: row["batch_size"] for label, row in row_by_tag.items()} == {
        TWICE: 16,
        FOURFOLD: 32,
        BOTH: 32,
    }
    assert row_by_tag[TWICE]["speedup"] == pytest.approx(1.25)
    assert row_by_tag[TWICE]["abs_latency"] == pytest.approx(320)
