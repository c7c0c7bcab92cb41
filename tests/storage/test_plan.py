"""The plan: what a training of so many steps takes under each run, and what to train with."""

import json
import math
from argparse import ArgumentTypeError
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.arguments.lengths import read_length, write_length
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.endings import COMPILES_TOO_LONG
from breakeven.runner.protocol.states import RunState
from breakeven.runner.settings import Prices
from breakeven.runner.specs.experiment import (
    DataSpec,
    ModelSpec,
    PlanSpec,
    ScriptSpec,
    TrainingSpec,
)
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.answer_decision import Answer
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.plan import (
    Plan,
    TimeEstimate,
    UnknownLength,
    estimate_time,
    own_plan,
    own_steps,
    plan,
    steps_of,
)
from breakeven.storage.comparison.results import Choice, Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.library.summary import summarize
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.words.answer_sentence import answer_words, other_lengths, plan_details
from tests.helpers.comparisons import compared, comparison, result, row_of
from tests.helpers.comparisons import pays as paid
from tests.helpers.journals import (
    EXPERIMENT_ID,
    Recording,
    experiment_spec,
    falling_losses,
    record_experiment,
)


def spoken(planned: Plan, prices: Prices | None = None) -> str:
    """The answer and its details, as the terminal prints them."""
    return f"{answer_words(planned)} {plan_details(planned, prices or Prices())}".strip()


def record(
    data_dir: DataDir, seconds: float, losses: list[float] | None = None, **changes: Any
) -> None:
    """Steps of 0.2 s, and of `seconds` under inductor after 3 s of compiling."""
    spec = experiment_spec(num_steps=80, **changes)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        is_backend = label == "inductor"
        learned = losses if is_backend and losses else falling_losses(80)
        run.blocks([seconds if is_backend else 0.2] * 8, learned, 3.0 if is_backend else 0.0)
        run.evaluation(0.8).end()


@pytest.fixture(scope="module")
def pays(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """3 s of compiling are paid for by 0.1 s a step after 30 steps."""
    data_dir = DataDir(tmp_path_factory.mktemp("pays"))
    record(data_dir, 0.1)
    return compared(data_dir)


@pytest.mark.parametrize(
    ("num_steps", "best", "total", "uncompiled"),
    [(29, None, 5.9, 5.8), (31, "inductor", 6.1, 6.2), (20_000, "inductor", 2003.0, 4000.0)],
)
def test_a_faster_backend_is_taken_for_trainings_that_are_longer_than_its_break_even(
    pays: Comparison, num_steps: int, best: str | None, total: float, uncompiled: float
) -> None:
    planned = plan(pays, num_steps)
    assert (planned.best.label if planned.best else None) == best
    assert planned.totals["inductor"] == pytest.approx(total)
    assert planned.baseline_seconds == pytest.approx(uncompiled)


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """As `pays`, for a training of 100 steps in 4 starts. A later one compiles in its first block
    of 10 steps for 1 s: 2 s instead of 1 s."""
    data_dir = DataDir(tmp_path_factory.mktemp("starts"))
    spec = experiment_spec(num_steps=80, plan=PlanSpec(steps=100, starts=4))
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        compiles = label == "inductor"
        run.blocks([0.1 if compiles else 0.2] * 8, falling_losses(80), 3.0 if compiles else 0.0)
        run.evaluation(0.8)
        if compiles:
            run.time_more([2.0, 1.0], compiled=[0], caches="kept")
        run.end()
    return compared(data_dir)


def test_each_start_compiles_the_first_one_with_empty_caches(starts: Comparison) -> None:
    # 3 s once and 1 s three times are 6 s, which 0.1 s a step repay after 60 steps.
    planned = own_plan(starts)
    assert planned.totals == pytest.approx({"baseline": 20.0, "control": 20.0, "inductor": 16.0})
    assert [choice.from_steps for choice in planned.choices] == [0.0, pytest.approx(60.0)]
    text = spoken(planned)
    assert "Use inductor for 100 steps in 4 starts: 16 s instead of 20 s" in text
    assert "compiles for 3.00 s at the first start, and for 1.00 s at each later one" in text
    measured = starts.result_of("inductor").measured
    assert (measured.compile_seconds, measured.warm_compile_seconds) == (
        pytest.approx(3.0),
        pytest.approx(1.0),
    )


def test_many_starts_of_a_short_training_do_not_pay(starts: Comparison) -> None:
    # 3 s + 9 x 1 s, and 100 x 0.1 s that are saved.
    planned = plan(starts, 100, 10)
    assert planned.answer is not None and planned.answer.kind == "do not compile"
    assert planned.totals["inductor"] == pytest.approx(22.0)
    assert plan(starts, 100, 1).totals["inductor"] == pytest.approx(13.0)


def test_a_start_that_was_not_timed_counts_as_the_first_one(pays: Comparison) -> None:
    planned = plan(pays, 100, 4)
    assert planned.totals["inductor"] == pytest.approx(22.0)
    assert "Each start of inductor counts as the first one, which compiled for 3.00 s" in spoken(
        planned
    )


def test_a_later_start_changes_no_speed_and_no_memory(starts: Comparison, pays: Comparison) -> None:
    again, once = (comparison.result_of("inductor") for comparison in (starts, pays))
    assert (again.speedup and again.speedup.median) == (once.speedup and once.speedup.median)
    assert again.measured.num_steps == once.measured.num_steps
    assert not {"rounds added", "different lengths"} & {warning.kind for warning in starts.warnings}


def test_what_the_first_process_compiled_later_than_the_later_start_went_counts_as_cold(
    data_dir: DataDir,
) -> None:
    """2 s in the first step and 4 s in step 40, of 0.1 s each; a later start makes 20 steps."""
    spec = experiment_spec(num_steps=80, controls=0)
    for label in ("baseline", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        for number in range(8):
            extra = {0: 2.0, 4: 4.0}.get(number, 0.0) if label == "inductor" else 0.0
            seconds = [0.1 + extra, *[0.1] * 9]
            run.block(seconds, falling_losses(10), compiled=[0] if extra else ())
        if label == "inductor":
            run.time_more([2.0, 1.0], compiled=[0], caches="kept")
        run.end()
    measured = compared(data_dir).result_of("inductor").measured
    assert measured.compile_seconds == pytest.approx(6.0)
    assert measured.warm_compile_seconds == pytest.approx(5.0)


def test_the_line_of_a_run_comes_from_its_break_even_else_from_its_speedup_else_from_its_step() -> (
    None
):
    baseline = result("baseline", step_seconds=0.4)
    measured = {"step_seconds": 0.35, "compile_seconds": 7.0}
    speedup = Ratio(median=1.6, low=None, high=None, p_value=None, n=3)
    earns = paid("reached", 100, gain=0.1)  # 100 steps of 0.1 s: 10 s of compiling
    by_rounds = result("a", speedup=speedup, break_even=earns, **measured)
    by_ratio = result("a", speedup=speedup, **measured)
    # 0.4 s - 0.1 s; 0.4 s / 1.6; its own step where nothing was paired.
    assert estimate_time(by_rounds, baseline) == TimeEstimate(
        compile_seconds=10.0, step_seconds=pytest.approx(0.3)
    )
    assert estimate_time(by_ratio, baseline) == TimeEstimate(compile_seconds=7.0, step_seconds=0.25)
    for alone in (result("a", **measured), by_ratio):
        assert estimate_time(alone, None) == TimeEstimate(compile_seconds=7.0, step_seconds=0.35)


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """3 s of compiling for 0.1 s a step pay after 30 steps. 18 s for 0.15 s, the middle of the
    rounds, pay after 120 steps, and against the first one after 300: 18 + 0.05 n = 3 + 0.1 n.

    In seven rounds the second one saves 0.02 to 0.08 s a step against the first one. Of a median of
    seven, the second least and the second greatest value are the ends of the interval: 0.03 and
    0.075 s earn the further 15 s in 500 and 200 steps.
    """
    data_dir = DataDir(tmp_path_factory.mktemp("several"))
    spec = experiment_spec(num_steps=80, backends=("inductor", "cudagraphs"))
    saved = [0.05, 0.02, 0.06, 0.03, 0.075, 0.04, 0.08, 0.05]
    steps_of_runs = {
        "baseline": [0.2] * 8,
        "control": [0.2] * 8,
        "inductor": [0.1] * 8,
        "cudagraphs": [0.1 - seconds for seconds in saved],
    }
    for label, steps in steps_of_runs.items():
        compiling = {"inductor": 3.0, "cudagraphs": 18.0}.get(label, 0.0)
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks(steps, falling_losses(80), compiling).evaluation(0.8).end()
    return compared(data_dir)


def test_the_plan_knows_the_best_choice_by_length_with_intervals(several: Comparison) -> None:
    chosen = [
        (choice.label, choice.from_steps, choice.low, choice.high)
        for choice in plan(several, 50).choices
    ]
    assert chosen == [
        (None, 0.0, None, None),
        ("inductor", pytest.approx(30), pytest.approx(30), pytest.approx(30)),
        ("cudagraphs", pytest.approx(300), pytest.approx(200), pytest.approx(500)),
    ]


@pytest.mark.parametrize(
    ("num_steps", "is_sure", "said"),
    [
        (199, True, "from 300 steps (200 to 500) on, use cudagraphs."),
        (201, False, "not sure: cudagraphs may take less from 200 steps on. Below 30 steps"),
        (499, False, "not sure: cudagraphs may take less than inductor only from 500 steps on."),
        (501, True, "do not compile; below 300 steps (200 to 500), use inductor"),
    ],
)
def test_changes_may_be_open(several: Comparison, num_steps: int, is_sure: bool, said: str) -> None:
    planned = plan(several, num_steps)
    assert planned.is_sure == is_sure
    words = spoken(planned)
    taken = (
        f"inductor for {num_steps} steps: 23 s instead of 40 s"
        if num_steps < 300
        else f"cudagraphs for {num_steps} steps: 43 s instead of 1 min 40 s"
    )
    start = f"Use {taken}, compiling included; it learns the same thing. "
    assert words.startswith(start) and said in words
    assert ("not sure" in words) is not is_sure


@pytest.mark.parametrize(("planned", "over"), [(1000, " over the first 80 steps"), (80, "")])
def test_a_training_that_was_measured_for_a_longer_plan_says_how_far_it_was_compared(
    data_dir: DataDir, planned: int, over: str
) -> None:
    record(data_dir, 0.1, plan=PlanSpec(steps=planned))
    said = spoken(plan(compared(data_dir), planned))
    assert f"; it learns the same thing{over}. " in said


@pytest.mark.parametrize("seconds", [0.199, 0.4], ids=["within the noise", "slower"])
def test_only_gains_are_taken(data_dir: DataDir, seconds: float) -> None:
    record(data_dir, seconds, None)
    planned = plan(compared(data_dir), 10_000_000)
    assert planned.best is None
    assert planned.totals["inductor"] == pytest.approx(3 + 10_000_000 * seconds)


def test_what_learns_something_else_has_neither_a_speed_nor_a_time_to_plan_with(
    data_dir: DataDir,
) -> None:
    record(data_dir, 0.1, [2.0] * 80)
    comparison = compared(data_dir)
    planned, wrong = plan(comparison, 10_000_000), row_of(comparison, "inductor")
    assert planned.best is None and "inductor" not in planned.totals
    assert (wrong.speedup, wrong.speed_verdict, wrong.break_even) == (None, None, None)
    assert wrong.measured.step_seconds == pytest.approx(0.1), "the steps were timed nonetheless"
    assert set(comparison.round_speedups["label"]) == {"control"}


@pytest.mark.parametrize(
    ("states", "num_steps"),
    [
        (("cancelled", "cancelled", "cancelled"), 80),
        (("failed", "lost", "cancelled"), 80),
        (("finished", "finished", "cancelled"), 40),
        (("finished", "finished", "finished"), 40),
    ],
)
def test_the_planned_length_is_the_trainings_own_unless_it_ended_earlier_by_itself(
    data_dir: DataDir, states: tuple[str, ...], num_steps: int
) -> None:
    """After 40 of 80 steps."""
    spec = experiment_spec(num_steps=80)
    for label, state in zip(("baseline", "control", "inductor"), states, strict=True):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * 4, falling_losses(40)).end(RunState(state))
    assert own_steps(compared(data_dir)) == num_steps


def test_a_script_that_never_made_a_step_has_no_length(data_dir: DataDir) -> None:
    spec = experiment_spec(
        task="script",
        data=DataSpec(source="script"),
        training=TrainingSpec(),
        model=ModelSpec(source="script:/home/me/train.py"),
        script=ScriptSpec(),
    )
    for label in ("baseline", "control", "inductor"):
        Recording(data_dir.runs, label, spec).claim().start().end(RunState.FAILED, "no step")
    comparison = compared(data_dir)
    assert own_steps(comparison) is None
    assert " for " not in str(answer_words(plan(comparison, None)))


def test_without_a_baseline_no_plan(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    spec = experiment_spec(num_steps=80)
    for label, num_blocks in {"baseline": 2, "control": 8, "inductor": 8}.items():
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.1] * num_blocks, falling_losses(80))
        run.end(RunState.FAILED if label == "baseline" else RunState.FINISHED)
    with Store.open(data_dir) as store:  # which keeps what it computed for the command
        store.ingest_all()
        planned = plan(compare(store, EXPERIMENT_ID), 80)
    assert (planned.totals, planned.choices, planned.best) == ({}, (), None)
    main(["show", "--wide", EXPERIMENT_ID, "--data-folder", str(data_dir.path)])
    assert "plan for" not in capsys.readouterr().out


def test_a_length_of_training_is_counted_in_the_experiments_own_steps(pays: Comparison) -> None:
    """80 steps in 10 rounds of 8, 0.2 s each without a compiler; 8 samples of 128 tokens a step, 80
    steps an epoch."""
    lengths = {
        "20,000": 20_000,
        "20e3 steps": 20_000,
        "2.5 epochs": 200,
        "400 samples": 50,
        "5120 tokens": 5,
        "2h": 36_000,
    }
    assert {text: steps_of(read_length(text), pays) for text in lengths} == lengths
    with pytest.raises(UnknownLength, match="from 1 to 1,000,000,000"):
        steps_of(read_length("1e9 hours"), pays)
    untold = comparison(result("baseline", step_seconds=0.2))
    with pytest.raises(UnknownLength, match="no number of samples per step"):
        steps_of(read_length("400 samples"), untold)


def test_a_length_may_name_the_starts_in_which_it_is_made() -> None:
    lengths = {
        "20000 steps in 10 starts": (20_000, "steps", 10),
        "20,000 in 1 start": (20_000, "steps", 1),
        "8h in 3 starts": (8, "hours", 3),
        "2 epochs": (2, "epochs", 1),
    }
    assert {text: read_length(text) for text in lengths} == lengths
    assert read_length(write_length(20_000, 10)) == (20_000, "steps", 10)
    assert write_length(5, 1) == "5 steps"


@pytest.mark.parametrize(
    "text",
    ["", "many", "5 parsecs", "0", "-3", "1e999", "nan", "5 in 0 starts", "5 in starts", "5 in 2"],
)
def test_what_is_no_length_of_a_training_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ArgumentTypeError, match="20000 steps, 10 epochs"):
        read_length(text)


def test_the_command_plans(data_dir: DataDir, capsys: pytest.CaptureFixture[str]) -> None:
    """A measurement of speed has no length of its own."""
    record(data_dir, 0.1)
    fast = DataDir(data_dir.path / "speed")
    record_experiment(fast.runs, experiment_spec(num_steps=80, scenario="speed"))

    def shown(folder: DataDir, *options: str) -> str:
        main(["show", "--wide", EXPERIMENT_ID, "--data-folder", str(folder.path), *options])
        return capsys.readouterr().out

    long = "--plan=20000"
    said = "Use inductor for 20,000 steps: 33 min instead of 1 h 7 min, compiling included"
    assert shown(data_dir, long).startswith(said)
    assert shown(data_dir).startswith("Use inductor for 80 steps: ")
    assert shown(fast).startswith("Below 30 steps (30 to 30), do not compile; from 30 steps")
    assert shown(fast, long).startswith("Use inductor for 20,000 steps: ")
    in_json = json.loads(shown(data_dir, long, "--json"))
    assert in_json["answer"]["kind"] == "use" and in_json["answer"]["words"].startswith(said)
    planned = in_json["plan"]
    assert planned["best"] == "inductor" and planned["num_steps"] == 20_000
    assert planned["seconds"]["inductor"] == pytest.approx(2003.0)
    assert [choice["label"] for choice in planned["choices"]] == [None, "inductor"]


CHOICES = (
    Choice(from_steps=0.0, label=None),
    Choice(from_steps=1310.2, low=1210.4, high=1399.6, label="inductor"),
    Choice(from_steps=84000.0, label="max<autotune>"),
)


@pytest.mark.parametrize(
    ("num_steps", "high", "is_sure", "said"),
    [
        # 5 s of compiling, then 0.1 s a step instead of 0.2 s: 50 steps.
        (61, 60, True, "Use a for 61 steps: 11 s instead of 12 s, compiling included; "),
        (
            51,
            60,
            False,
            "Not decided for 51 steps: a takes practically as long, 10 s with and "
            "without it, but it pays off somewhere between 40 and 60 steps; a longer",
        ),
        (
            58,
            60,
            False,
            "Not decided for 58 steps: probably use a, 11 s instead of 12 s, compiling "
            "included, but it pays off somewhere between 40 and 60 steps; a longer",
        ),
        (58, math.inf, False, "but it may pay off after 40 steps or never; a longer measurement"),
        (
            45,
            60,
            False,
            "Not decided for 45 steps: probably do not compile, 9.0 s instead of 9.5 s "
            "with a, but it pays off",
        ),
        (39, 60, True, "Do not compile for 39 steps: 7.8 s without a compiler, 8.9 s with a."),
    ],
)
def test_a_break_even_may_be_open(num_steps: int, high: float, is_sure: bool, said: str) -> None:
    faster = Ratio(median=2.0, low=1.9, high=2.1, p_value=0.01, n=9)
    planned = plan(
        comparison(
            result("baseline", step_seconds=0.2),
            result(
                "a",
                speedup=faster,
                speed_verdict="faster",
                break_even=paid("reached", 50, 40, high, gain=0.1),
            ),
        ),
        num_steps,
    )
    assert planned.is_sure == is_sure
    words = spoken(planned)
    assert said in words
    assert ("Not decided" in words) is not is_sure
    until = "never" if high > 60 else "60"
    assert words.endswith(
        "Below 50 steps (40 to 60), do not compile."
        if num_steps == 61
        else f"From 50 steps (40 to {until}) on, use a."
    )


@pytest.mark.parametrize("scenario", ["tune", "train"])
def test_only_a_backend_that_surely_pays_for_its_compiling_is_named(scenario: str) -> None:
    """`b` takes the least time from 50 steps on, but may need up to 60 to beat no compiler; `a`,
    which compiles for 2 s and saves 0.08 s a step, surely pays after 30 steps."""
    faster = Ratio(median=2.0, low=1.9, high=2.1, p_value=0.01, n=9)
    sure = result(
        "a",
        speedup=faster,
        speed_verdict="faster",
        break_even=paid("reached", 25, 20, 30, gain=0.08),
    )
    unsure = result(
        "b",
        speedup=faster,
        speed_verdict="faster",
        break_even=paid("reached", 40, 30, 60, gain=0.1),
    )
    base = result("baseline", step_seconds=0.2)

    def best(num_steps: int, *results: Result) -> str | None:
        best_result = plan(comparison(base, *results, scenario=scenario), num_steps).best
        return best_result.label if best_result else None

    assert best(55, unsure) is None and best(61, unsure) == "b"
    assert best(55, sure, unsure) == "a"
    planned = plan(comparison(base, unsure, scenario=scenario), 54)
    assert planned.answer and planned.answer.probable == "b" and not planned.is_sure
    assert spoken(planned) == (
        "Not decided for 54 steps: probably use b, 9.4 s instead of 11 s, compiling included, but "
        "it pays off somewhere between 30 and 60 steps; a longer measurement would decide; whether "
        "it learns the same was not tested. From 40 steps (30 to 60) on, use b."
    )


@pytest.mark.parametrize(
    ("scenario", "remedy"), [("tune", "a larger budget"), ("train", "more steps")]
)
def test_a_candidate_that_was_timed_only_a_few_times_is_not_advised_against(
    scenario: str, remedy: str
) -> None:
    """Two and a half times as fast as steps of 0.2 s, after 5 s of compiling: 4,005 s for 50,000
    steps instead of 10,000 s, and 6 s instead of 2.5 s for 12."""
    few = Ratio(median=2.5, low=None, high=None, p_value=None, n=3)
    base = result("baseline", step_seconds=0.2)
    fast = result("a", step_seconds=0.08, compile_seconds=5.0, speedup=few, speed_verdict="unsure")
    compared_runs = comparison(base, fast, scenario=scenario)
    assert spoken(plan(compared_runs, 50_000)) == (
        "Not decided for 50,000 steps: probably use a, 1 h 7 min instead of 2 h 47 min, compiling "
        f"included, but fewer than 6 rounds were timed; {remedy} would decide; whether it learns "
        "the same was not tested."
    )
    assert spoken(plan(compared_runs, 12)) == (
        "Do not compile for 12 steps: 2.4 s without a compiler, 6.0 s with a."
    )


@pytest.mark.parametrize("scenario", ["tune", "train"])
def test_the_best_backend_is_not_sure_while_another_may_take_less(scenario: str) -> None:
    """For 1,000 steps `a` takes 102 s; `b`, by a few rounds, 85 s, and `c` 121 s; 200 s without."""
    faster = Ratio(median=2.0, low=1.9, high=2.1, p_value=0.01, n=9)
    base = result("baseline", step_seconds=0.2)
    sure = result(
        "a",
        speedup=faster,
        speed_verdict="faster",
        break_even=paid("reached", 20, 20, 20, gain=0.1),
    )

    def tried(label: str, step_seconds: float, low: float | None) -> Result:
        ratio = Ratio(median=0.2 / step_seconds, low=low, high=low and 9.0, p_value=0.1, n=4)
        return result(
            label,
            step_seconds=step_seconds,
            compile_seconds=5.0,
            speedup=ratio,
            speed_verdict="unsure",
        )

    for low in (None, 0.9):  # with too few rounds for an interval, or with one
        quicker, slower = tried("b", 0.08, low), tried("c", 0.116, low)
        planned = plan(comparison(base, sure, quicker, slower, scenario=scenario), 1000)
        assert (planned.best, planned.rival, planned.is_sure) == (sure, quicker, False)
        assert spoken(planned) == (
            "Use a for 1,000 steps: 1 min 42 s instead of 3 min 20 s, compiling included; whether "
            "it learns the same was not tested. This is not sure: b may take only 1 min 25 s. "
            "Below 20 steps (20 to 20), do not compile."
        )
    assert plan(comparison(base, sure, slower, scenario=scenario), 1000).is_sure


@pytest.mark.parametrize("num_blocks", [4, 8])
def test_a_candidate_that_a_search_ended_for_its_losses_is_not_advised(
    data_dir: DataDir, num_blocks: int
) -> None:
    """Whether or not its rounds suffice for an interval, and whatever its parity is."""
    spec = replace(experiment_spec(num_steps=80), scenario="tune")
    for label, seconds in {"baseline": 0.2, "control": 0.2, "inductor": 0.1}.items():
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([seconds] * num_blocks, falling_losses(10 * num_blocks), 0.0)
        cause = "wrong" if label == "inductor" else "searched"
        run.stop("it is over", cause=cause, target_width=0.02).end()
    with Store.in_memory(data_dir) as store:
        planned = plan(compare(store, EXPERIMENT_ID), 50_000)
        assert summarize(store, EXPERIMENT_ID).leading is None
    assert "inductor" not in planned.totals and planned.best is None
    words = spoken(planned)
    assert words == (
        "Nothing worked: inductor cannot be trusted: its losses leave the band of equal trainings."
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            f"{COMPILES_TOO_LONG} of 50,000 steps takes under baseline",
            "Do not compile for 50,000 steps: no backend is faster.",
        ),
        (
            "the budget of 40 s was spent",
            "Not decided for 50,000 steps: no round of inductor can be compared; a larger budget "
            "would decide.",
        ),
    ],
)
def test_a_search_that_timed_no_candidate_decides_only_if_compiling_took_too_long(
    data_dir: DataDir, reason: str, words: str
) -> None:
    spec = replace(experiment_spec(num_steps=80), scenario="tune")
    for label in ("baseline", "control"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        run.blocks([0.2] * 8, falling_losses(80), 0.0)
        run.stop("the budget is spent", cause="seconds", target_width=0.02, budget=40.0).end()
    run = Recording(data_dir.runs, "inductor", spec).claim().start()
    run.end(RunState.CANCELLED, reason)
    with Store.in_memory(data_dir) as store:
        assert spoken(plan(compare(store, EXPERIMENT_ID), 50_000)) == words


def test_without_a_length_the_plan_says_the_best_choice_for_every_length() -> None:
    known = Plan(
        num_steps=None, answer=None, totals={}, best=None, baseline="baseline", choices=CHOICES
    )
    assert other_lengths(known) == (
        "Below 1,310 steps (1,210 to 1,400), do not compile; from 1,310 steps (1,210 to 1,400) on, "
        "use inductor; from about 84,000 steps on, use max<autotune>."
    )
    assert other_lengths(replace(known, choices=CHOICES[:1])) == "Do not compile."


def test_the_plan_says_what_the_choice_costs_in_energy_and_money() -> None:
    """Two hours on two devices at 2.5 an hour are 10; five steps of 1.44 MJ are 2 kWh at 0.3, which
    is 0.6, and 0.8 kg of CO2 at 400 g each."""
    slower = Answer(kind="do not compile", reason="slower", backend="inductor")
    plan = Plan(
        num_steps=5,
        answer=slower,
        best=None,
        totals={"baseline": 7200.0, "inductor": 9000.0},
        baseline="baseline",
        step_joules={"baseline": 1.44e6},
        num_devices=2,
        choices=CHOICES[:1],
        chosen=CHOICES[0],
    )
    prices = Prices(currency="EUR", device_hour=2.5, kwh=0.3, co2_grams_per_kwh=400)
    assert spoken(plan, prices) == (
        "Do not compile for 5 steps: 2 h 0 min without a compiler, 2 h 30 min with inductor. The "
        "steps use 2.00 kWh. They emit 0.800 kg of CO2. The training costs 10.6 EUR."
    )
    assert "The training costs 4,001 EUR." in spoken(replace(plan, num_devices=800), prices)
    unmeasured = replace(plan, step_joules={"inductor": 1.0})
    assert "The training costs 10.0 EUR without energy." in spoken(unmeasured, prices)
    assert "The training costs 10.0 EUR." in spoken(unmeasured, replace(prices, kwh=0.0))
