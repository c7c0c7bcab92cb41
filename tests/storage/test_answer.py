"""The answer of a plan: one of four kinds, one sentence, and nothing wrong is ever recommended."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from breakeven.runner.arguments.conditions import Condition
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.states import RunState
from breakeven.runner.settings import Prices
from breakeven.storage import commands
from breakeven.storage.__main__ import main
from breakeven.storage.comparison.comparison import compare
from breakeven.storage.comparison.compiler_warnings import CompilerGaveUp, GivenUpFunction
from breakeven.storage.comparison.plan import Plan, own_plan, plan
from breakeven.storage.comparison.results import Result
from breakeven.storage.comparison.shortfall import Shortfall
from breakeven.storage.index.store import Store
from breakeven.storage.library.summary import summarize
from breakeven.storage.side_by_side.ratios import differences
from breakeven.storage.side_by_side.sides import load_sides
from breakeven.storage.statistics.parity import Parity, unknown_parity
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.statistics.steps_to_loss import StepsToLoss
from breakeven.storage.terminal.gate import reasons
from breakeven.storage.terminal.report import report, short_report
from breakeven.storage.terminal.side_by_side import difference_report
from breakeven.storage.words.answer_sentence import (
    answer_words,
    plan_details,
    speed_reason,
    times_to_loss,
    total_words,
)
from breakeven.storage.words.compiler_advice import warning_words
from breakeven.storage.words.parity import learning_words
from breakeven.views.report.content import content
from tests.helpers.comparisons import compared, comparison, pays, result, row_of
from tests.helpers.journals import EXPERIMENT_ID, Recording, experiment_spec, falling_losses
from tests.helpers.pages import without_links

SAME, SECOND = Parity(verdict="holds"), "20261122-000000-000000-aaaa"
BASELINE = result("baseline", step_seconds=0.2)


def rated(label: str, verdict: str, median: float, low: float, high: float, **more: Any) -> Result:
    """A backend that compiles for 5 s, with the same losses as the baseline."""
    ratio = Ratio(median=median, low=low, high=high, p_value=0.5, n=20)
    values = {"step_seconds": 0.2 / median, "compile_seconds": 5.0, "parity": SAME, "p_holm": 0.5}
    return result(label, speedup=ratio, speed_verdict=verdict, **values | more)


def answered(num_steps: int | None, *results: Result, **changes: Any) -> Plan:
    return plan(replace(comparison(BASELINE, *results), **changes), num_steps)


def spoken(planned: Plan) -> str:
    return str(answer_words(planned))


def test_a_long_training_with_an_inconclusive_backend_is_not_decided() -> None:
    """20,000 steps of 0.2 s are 1 h 7 min; at 1.1x they are 3,636 s, and 5 s of compiling."""
    open_one = rated("a", "unsure", 1.1, 0.98, 1.25, more_rounds=29)
    planned = answered(20_000, open_one)
    assert planned.answer is not None and planned.best is None and not planned.is_sure
    assert (planned.answer.kind, planned.answer.probable) == ("not decided", "a")
    assert spoken(planned) == (
        "Not decided for 20,000 steps: probably use a, 1 h 1 min instead of 1 h 7 min, compiling "
        "included, but the speedup of 1.10x (0.98 to 1.25) may be chance; about 29 more rounds "
        "would decide."
    )
    slower = spoken(answered(20_000, rated("a", "unsure", 0.95, 0.9, 1.04)))
    assert slower.startswith("Not decided for 20,000 steps: probably do not compile, 1 h 7 min")
    assert slower.endswith("may be chance; no difference above 11.1 % is visible.")


OPEN = Parity(verdict="not decided", by_outcome=True)


def test_another_training_is_not_recommended_before_its_outcome_is_decided() -> None:
    """At 2x, 20,000 steps of 0.2 s take 2,005 s instead of 4,000 s."""
    cheat = rated("skips", "faster", 2.0, 1.9, 2.1, parity=OPEN)
    planned = answered(20_000, cheat)
    assert planned.answer is not None and planned.best is None and not planned.is_sure
    assert planned.answer.kind == "not decided" and planned.answer.probable is None
    assert spoken(planned) == (
        "Not decided for 20,000 steps: skips takes 33 min instead of 1 h 7 min, but it makes "
        "another training, and whether it is as good is not decided."
    )
    assert answered(None, cheat).answer.kind == "not decided"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("parity", "kind"),
    [
        (unknown_parity("no control"), "not decided"),
        (unknown_parity("no losses"), "not decided"),
        (Parity(verdict="nothing learned"), "not decided"),
        (None, "not decided"),
        (SAME, "use"),
        (Parity(verdict="as good", by_outcome=True), "use"),
    ],
)
def test_an_arm_that_declares_another_mathematics_is_used_only_if_it_is_shown_to_be_as_good(
    parity: Parity | None, kind: str
) -> None:
    even = pays("reached", 50, 48, 52, gain=0.1)
    compiled = rated("skips", "faster", 2.0, 1.9, 2.1, parity=parity, break_even=even)
    planned = answered(20_000, replace(compiled, changes_training=True))
    assert planned.answer is not None and planned.answer.kind == kind
    if kind == "not decided":
        assert spoken(planned) == (
            "Not decided for 20,000 steps: skips takes 33 min instead of 1 h 7 min, but it may "
            "make another training, and whether that is as good is not known."
        )
        assert answered(20_000, compiled).answer.kind == "use"  # type: ignore[union-attr]


def test_a_total_has_the_interval_of_its_speedup() -> None:
    """5 s of compiling and 100 steps of 0.2 s / 2; of 0.2 s / 2.5 and of 0.2 s / 1.6."""
    even = pays("reached", 50, gain=0.1)
    faster = rated("a", "faster", 2.0, 1.6, 2.5, break_even=even)
    planned = answered(100, faster)
    assert planned.total_intervals == {"a": pytest.approx((13.0, 17.5))}
    assert str(total_words(planned)) == "In all a takes 15.0 s (13.0 s to 17.5 s)."
    assert str(total_words(answered(None, faster))) == ""


def test_learning_is_said_with_the_share_of_the_band_and_the_steps_that_have_one() -> None:
    """Steps count from 0, so 589 is the last of 590."""
    near = Parity(verdict="holds", max_ratio_to_band=0.254, last_step_in_band=589)
    learned = result("a", parity=near, num_steps=600)
    assert str(learning_words(learned)) == (
        "learned the same: within 0.25 of what rounding does to 590 of 600 steps."
    )
    assert str(learning_words(BASELINE)) == ""


def learns_twice_as_fast(surely: float) -> Result:
    """A step takes 0.2 / 0.8 = 0.25 s; beside 5 s of compiling, 5,000 of them take 1,255 s instead
    of 10,000 x 0.2 s. The interval: 4,800 x 0.2 / 0.85 and 5,200 x 0.2 / 0.75 s."""
    to_loss = StepsToLoss(
        loss=2.04, expected=10_000, steps=5_000, low=4_800, high=5_200, surely=surely
    )
    better = Parity(verdict="better", by_outcome=True, to_loss=to_loss)
    return rated("wide", "slower", 0.8, 0.75, 0.85, parity=better)


def test_an_arm_that_is_slower_per_step_and_learns_sooner_is_no_loser() -> None:
    # 7,400 x 0.2 / 0.75 + 5 is below 2,000 s.
    planned = answered(20_000, learns_twice_as_fast(surely=7_400))
    assert spoken(planned) == (
        "Not decided for 20,000 steps: wide takes 1 h 23 min instead of 1 h 7 min, but it reaches "
        "a training loss of 2.04 after 20 min 55 s (18 min 54 s to 23 min 12 s) instead of 33 min "
        "20 s; it makes another training, which is better."
    )
    assert planned.answer is not None
    assert (planned.answer.reason, planned.answer.probable) == ("learns sooner", None)
    unsure = comparison(BASELINE, learns_twice_as_fast(surely=7_600))
    decided = plan(unsure, 20_000).answer
    assert decided is not None and decided.kind == "do not compile"
    assert [label for label, _ in times_to_loss(unsure)] == ["wide"], (
        "its time is shown all the same"
    )


def test_a_time_to_the_loss_that_may_be_the_baselines_is_among_all_numbers_alone() -> None:
    """At most 8,000 x 0.2 / 0.75 + 5 = 2,138 s, where the baseline takes 2,000 s."""
    result = learns_twice_as_fast(surely=9_000)
    assert result.parity is not None and result.parity.to_loss is not None
    wide = replace(result.parity, to_loss=replace(result.parity.to_loss, high=8_000))
    both = comparison(BASELINE, replace(result, parity=wide))
    assert "reaches a training loss" not in short_report(both)
    assert "wide reaches a training loss of 2.04" in report(both)


def test_why_all_runs_failed_is_said_once_and_whole(data_dir: DataDir) -> None:
    why = "train.py: No module named 'gym'. Install it there, or name the Python that has it"
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, experiment_spec()).claim().start()
        run.end(RunState.FAILED, why)
    lines = short_report(compared(data_dir)).splitlines()
    assert [line for line in lines if "gym" in line] == [
        f"warning: baseline failed before its first step: {why}. (likewise control and inductor)"
    ]


def test_what_learns_sooner_is_said_beside_an_arm_that_is_faster() -> None:
    even = pays("reached", 125, 120, 130, gain=0.04)
    good = rated("good", "faster", 1.25, 1.2, 1.3, break_even=even)
    both = comparison(BASELINE, good, learns_twice_as_fast(surely=7_400))
    assert spoken(plan(both, 20_000)).startswith("Use good for 20,000 steps")
    shown = "wide reaches a training loss of 2.04 after"
    assert shown in report(both) and shown in short_report(both)


def test_what_is_surely_good_is_recommended_before_a_faster_one_that_may_be_worse() -> None:
    """At 1.25x, 20,000 steps of 0.2 s take 3,205 s."""
    cheat = rated("skips", "faster", 2.0, 1.9, 2.1, parity=OPEN)
    # 5 s of compiling at a gain of 0.04 s a step.
    even = pays("reached", 125, 120, 130, gain=0.04)
    planned = answered(20_000, cheat, rated("good", "faster", 1.25, 1.2, 1.3, break_even=even))
    assert planned.best is not None and planned.best.label == "good"
    assert spoken(planned).startswith("Use good for 20,000 steps: 53 min instead of 1 h 7 min")
    assert (
        "This is not sure: skips takes 33 min, but whether its training is as good is open."
        in plan_details(planned, Prices())
    )


@pytest.mark.parametrize(("num_steps", "kind"), [(48, "do not compile"), (49, "not decided")])
def test_an_outcome_is_open_only_where_the_training_may_take_less_time(
    num_steps: int, kind: str
) -> None:
    """5 s of compiling at a gain of 0.1 s a step are repaid after 48 steps at the earliest."""
    even = pays("reached", 50, 48, 52, gain=0.1)
    planned = answered(
        num_steps, rated("skips", "faster", 2.0, 1.9, 2.1, parity=OPEN, break_even=even)
    )
    assert planned.answer is not None and planned.answer.kind == kind


@pytest.mark.parametrize(
    ("num_steps", "kind"),
    # At best a step saves 0.2 x (1 - 1 / 1.25) = 0.04 s, which repays 5 s after 125 steps.
    [(124, "do not compile"), (126, "not decided"), (None, "not decided")],
)
def test_what_cannot_pay_within_the_length_even_at_best_is_decided(
    num_steps: int | None, kind: str
) -> None:
    planned = answered(num_steps, rated("a", "unsure", 1.1, 0.98, 1.25))
    assert planned.answer is not None and planned.answer.kind == kind
    if num_steps == 124:
        assert planned.answer.reason == "length"


def test_equal_totals_are_practically_equal_whatever_the_speed() -> None:
    """20,000 steps take 4,000 s, and at 1.01x, which is faster, 3,965 s: 1 h 7 min and 1 h 6 min;
    1.002x is 3,997 s."""
    even = pays("reached", 12_500, 12_000, 13_000, gain=0.0004, seconds=1.0)
    almost = rated("a", "faster", 1.002, 1.001, 1.003, break_even=even, p_holm=0.001)
    planned = answered(20_000, almost)
    assert planned.best is None and planned.answer is not None
    assert (planned.answer.kind, planned.answer.is_equal) == ("do not compile", True)
    assert spoken(planned) == (
        "Do not compile for 20,000 steps: a takes practically as long, 1 h 7 min with and without "
        "it."
    )
    as_fast = spoken(answered(20_000, rated("a", "same", 1.001, 0.999, 1.003)))
    assert "practically as long" in as_fast


def test_rounds_are_offered_below_a_tenfold_and_else_the_largest_difference_is_said() -> None:
    offered = rated("a", "unsure", 1.1, 0.98, 1.25, more_rounds=29)
    assert speed_reason(offered).endswith("may be chance; about 29 more rounds would decide.")
    hopeless = rated("a", "unsure", 1.002, 0.97, 1.04)
    assert speed_reason(hopeless) == (
        "The speedup of 1.00x (0.97 to 1.04) may be chance; no difference above 4.0 % is visible."
    )
    assert comparison(BASELINE, offered).unsure == ["a"]
    assert comparison(BASELINE, hopeless).unsure == []


def test_no_rounds_are_offered_to_runs_that_take_no_turns(
    data_dir: DataDir, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that vary, so that more rounds would decide if there were any."""
    monkeypatch.setattr(commands, "EXAMPLES", None)  # which take seconds to be taken in
    times = [0.2, 0.1, 0.15, 0.16, 0.12, 0.22, 0.1, 0.19]
    for schedule, offers in (("turns", True), ("sequential", False)):
        folder = DataDir(data_dir.path / schedule)
        spec = experiment_spec(num_steps=80, schedule=schedule)
        for label in ("baseline", "control", "inductor"):
            seconds = times if label == "inductor" else [0.2] * 8
            run = Recording(folder.runs, label, spec).claim().start()
            run.blocks(seconds, falling_losses(80), 3.0 if label == "inductor" else 0.0)
            run.evaluation(0.8).end()
        with Store.open(folder) as store:  # which keeps what it computed for the command
            store.ingest_all()
            result = row_of(compare(store, EXPERIMENT_ID), "inductor")
        assert (result.more_rounds is not None) is offers
        assert ("more round" in speed_reason(result)) is offers
        plan = ["--plan", "9000 steps", "--data-folder", str(folder.path)]
        main(["show", "--wide", EXPERIMENT_ID, *plan])
        said = " ".join(capsys.readouterr().out.split())
        assert (f"resume {EXPERIMENT_ID} --budget 10m --plan '9000 steps'" in said) is offers
        assert ("its runs do not take turns, so that it has no rounds" in said) is not offers


GIVEN_UP = GivenUpFunction(
    name="forward", place="train.py:15", operator="aten.bincount", is_part=False
)


def gave_up(*labels: str, is_all: bool, **facts: Any) -> tuple[CompilerGaveUp, ...]:
    functions = (replace(GIVEN_UP, **facts),)
    return tuple(
        CompilerGaveUp(run=label, functions=functions, reason="x", is_all=is_all)
        for label in labels
    )


def test_where_nothing_was_compiled_that_is_the_answer() -> None:
    idle = result("a", step_seconds=0.19, is_uncompiled=True, parity=SAME, state="finished")
    planned = answered(20_000, idle, warnings=gave_up("a", is_all=True))
    assert spoken(planned) == (
        "Nothing was compiled: Dynamo gave up at train.py:15 (aten.bincount)."
    )
    assert "a" not in planned.totals and planned.leading is None
    unexplained = spoken(answered(20_000, idle))
    assert unexplained == ("Nothing was compiled: the compiler captured nothing of the training.")


def test_a_part_that_was_given_up_is_named_beside_the_answer() -> None:
    even = pays("reached", 50, 40, 60, gain=0.1, seconds=10.0)
    planned = answered(
        20_000,
        rated("a", "faster", 2.0, 1.9, 2.1, break_even=even),
        warnings=gave_up("a", is_all=False),
    )
    assert spoken(planned) == (
        "Use a for 20,000 steps: 33 min instead of 1 h 7 min, compiling included; it learns the "
        "same thing; Dynamo gave up on forward at train.py:15 (aten.bincount)."
    )


def test_the_warning_that_dynamo_gave_up_says_what_to_do() -> None:
    (warning,) = gave_up("a", is_all=False)
    assert str(warning_words(warning)).endswith(
        "because the compiler gave up there: x (aten.bincount). Count with index_add_ on zeros of "
        "a fixed size, or count before the compiled call."
    )


def test_a_journal_in_which_dynamo_gave_up_on_everything_has_no_speed(data_dir: DataDir) -> None:
    failure = (
        "Dynamic shape operator\n  Explanation: Operator `aten.bincount.default`'s output "
        "shape depends on input Tensor data."
    )
    spec = experiment_spec(num_steps=80)
    for label in ("baseline", "control", "inductor"):
        run = Recording(data_dir.runs, label, spec).claim().start()
        if label == "inductor":
            run.captures = False
            run.log.append(
                "compile_metrics",
                step=0,
                phase="training",
                compile_id="0/0",
                function="forward",
                file="/home/ada/train.py",
                line=15,
                failure=failure,
            )
        run.blocks([0.1 if label == "inductor" else 0.2] * 8, falling_losses(80))
        run.evaluation(0.8).end()
    with Store.in_memory(data_dir) as store:
        comparison = compare(store, EXPERIMENT_ID)
        assert summarize(store, EXPERIMENT_ID).answer == "nothing compiled"
        page = content(store, EXPERIMENT_ID).page
    idle = row_of(comparison, "inductor")
    numbers = (idle.speedup, idle.speed_verdict, idle.more_rounds, idle.break_even)
    assert numbers == (None, None, None, None)
    assert spoken(own_plan(comparison)) == (
        "Nothing was compiled: Dynamo gave up at train.py:15 (aten.bincount)."
    )
    assert page.is_bad and page.headline.startswith("Nothing was compiled")
    assert reasons(comparison, [Condition(name="slower")]) == [
        "inductor: slower: nothing was compiled, so there is no speed to compare"
    ]
    assert "x (" not in page.evidence, "no speedup"


@pytest.mark.parametrize(
    ("states", "words"),
    [
        (["failed", "out_of_memory"], "Nothing worked: a and b did not finish."),
        (
            ["failed", "cancelled"],
            "Not decided for 80 steps: b was stopped; run it again, to its end.",
        ),
        (["failed", "running"], "Not decided for 80 steps: b is not over yet."),
        (
            ["failed", "finished"],
            "Not decided for 80 steps: no round of b can be compared; more steps would decide.",
        ),
    ],
)
def test_backends_without_a_speed(states: Sequence[str], words: str) -> None:
    runs = [result(label, state=state) for label, state in zip("ab", states, strict=True)]
    planned = answered(80, *runs)
    assert spoken(planned) == words and planned.best is None


def test_backends_that_crashed_or_train_wrong_leave_nothing() -> None:
    wrong = rated("b", "faster", 2.0, 1.9, 2.1, parity=Parity(verdict="broken"))
    planned = answered(20_000, result("a", state=RunState.FAILED), wrong)
    assert planned.answer is not None and planned.answer.kind == "nothing worked"
    assert spoken(planned).startswith("Nothing worked: a did not finish, and b cannot be trusted")


def test_where_every_arm_is_refused_the_baseline_is_kept() -> None:
    seems_worse = unknown_parity("other samples")
    worse = Shortfall(quantity="final_loss", value=0.4881, expected=0.08828)
    skips = rated("skips", "faster", 2.0, 1.9, 2.1, parity=seems_worse, shortfall=worse)
    refused = replace(answered(20_000, skips), has_only_compilers=False)
    assert spoken(refused).startswith("Keep the baseline: skips cannot be trusted: its final loss")
    failed = [result(label, state=RunState.FAILED) for label in ("baseline", "skips")]
    nothing = replace(plan(comparison(*failed), 20_000), has_only_compilers=False)
    assert spoken(nothing) == "Nothing worked: baseline and skips did not finish."


def test_a_baseline_that_failed_alone_leaves_everything_open() -> None:
    failed = replace(BASELINE, state=RunState.FAILED)
    broken_off = result("a", state=RunState.CANCELLED)
    assert spoken(plan(comparison(failed, broken_off), 80)) == (
        "Not decided for 80 steps: the baseline did not finish, so there is nothing to compare "
        "with."
    )


# A step of 0.1 s instead of 0.2 s after 3 s of compiling would be recommended from 31 steps on.
DIVERGED = [2 - step / 79 if step < 40 else math.nan for step in range(80)]
STUCK = [2.0 - 0.1 * step / 79 for step in range(80)]
FAILURES: dict[str, tuple[list[float], float]] = {
    "no gradients": (STUCK, 0.8),
    "diverges": (DIVERGED, 0.8),
    "evaluates worse": (falling_losses(80), 0.4),
}
"""Losses, and the accuracy of the evaluation, which is 0.8 for the baseline."""


def record_unknown(
    runs: Path,
    losses: list[float],
    accuracy: float,
    experiment_id: str = EXPERIMENT_ID,
    **changes: Any,
) -> None:
    """A backend that trained on other samples, so that parity is unknown."""
    spec = experiment_spec(num_steps=80, **changes)
    for label in ("baseline", *["control"] * spec.controls, "inductor"):
        is_backend = label == "inductor"
        run = Recording(runs, label, spec, experiment_id).claim()
        run.start(data_sha256="other" if is_backend else "bb")
        run.blocks(
            [0.1 if is_backend else 0.2] * 8,
            losses if is_backend else falling_losses(80),
            3.0 if is_backend else 0.0,
        )
        run.evaluation(accuracy if is_backend else 0.8).end()


KINDS: dict[str, dict[str, Any]] = {
    "training": {},
    "no control": {"controls": 0},
    "confirmation": {"confirms": SECOND},
}
DIAGONAL = [*zip(FAILURES, KINDS, strict=True)]
"""Each failure and each kind of experiment once; the other six cases are for the whole suite."""


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) in DIAGONAL else pytest.mark.heavy)
        for name in FAILURES
        for kind in KINDS
    ],
)
def test_a_backend_of_unknown_parity_that_ends_worse_is_nowhere_recommended(
    data_dir: DataDir,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    kind: str,
) -> None:
    monkeypatch.setattr(commands, "EXAMPLES", None)  # which take seconds to be taken in
    losses, accuracy = FAILURES[name]
    record_unknown(data_dir.runs, losses, accuracy, **KINDS[kind])
    with Store.open(data_dir) as store:  # which keeps what it computed for the command
        store.ingest_all()
        comparison = compare(store, EXPERIMENT_ID)
        summary = summarize(store, EXPERIMENT_ID)
        page = content(store, EXPERIMENT_ID).page
    backend = row_of(comparison, "inductor")
    assert backend.parity is not None and backend.parity.verdict == "unknown"
    assert backend.is_wrong and (backend.speedup, backend.speed_verdict) == (None, None)
    planned = plan(comparison, 20_000)
    assert (planned.best, planned.leading) == (None, None) and planned.answer is not None
    assert planned.answer.kind == "nothing worked" and planned.choices[-1].label is None
    sentence = spoken(planned)
    assert "inductor cannot be trusted: its " in sentence and "not known" in sentence
    assert (summary.leading, summary.answer) == (None, "nothing worked")
    assert page.is_bad and "inductor" in page.headline
    gate = reasons(comparison, [Condition(name="slower")])
    assert any("its training is wrong" in reason for reason in gate)
    main(
        [
            "show",
            "--wide",
            EXPERIMENT_ID,
            "--data-folder",
            str(data_dir.path),
            "--plan=20000",
            "--json",
        ]
    )
    in_json = json.loads(capsys.readouterr().out)
    assert in_json["answer"]["words"] == sentence and in_json["plan"]["best"] is None


@pytest.mark.parametrize("name", FAILURES)
def test_the_difference_of_two_experiments_recommends_no_worse_training(
    data_dir: DataDir, name: str
) -> None:
    """The second side's speedup would be higher: 4x instead of 2x."""
    losses, accuracy = FAILURES[name]
    record_unknown(data_dir.runs, falling_losses(80), 0.8)
    record_unknown(data_dir.runs, losses, accuracy, SECOND)
    with Store.in_memory(data_dir) as store:
        sides = load_sides(store, [EXPERIMENT_ID, SECOND])
        assert differences(sides) == []
        report = difference_report(sides)
    assert "B: inductor does not count: its " in report


def test_a_search_whose_only_candidate_ends_worse_recommends_nothing(data_dir: DataDir) -> None:
    losses, accuracy = FAILURES["diverges"]
    record_unknown(data_dir.runs, losses, accuracy, scenario="tune")
    planned = plan(compared(data_dir), 20_000)
    assert planned.best is None and spoken(planned).startswith("Nothing worked: inductor cannot be")


def test_a_backend_whose_sameness_was_merely_not_tested_is_used_with_a_word(
    data_dir: DataDir,
) -> None:
    record_unknown(data_dir.runs, falling_losses(80), 0.8)
    planned = plan(compared(data_dir), 20_000)
    assert planned.best is not None and planned.best.shortfall is None
    assert spoken(planned) == (
        "Use inductor for 20,000 steps: 33 min instead of 1 h 7 min, compiling included; whether "
        "it learns the same is not known."
    )


def noisy(level: float, shift: float) -> list[float]:
    """Falls from 2 to 1 and alternates by `level` around that, `shift` higher."""
    return [
        loss + shift + (level if step % 2 else -level)
        for step, loss in enumerate(falling_losses(80))
    ]


@pytest.mark.parametrize(
    ("level", "is_worse_by_shift"),
    [
        # 5 % of what was learned, about 0.9, are 0.05.
        (0.0, {0.02: False, 0.1: True, -0.5: False}),
        # Neighbours differ by 1, so a mean of 8 has the error 1 / sqrt(2 x 8) = 0.25; of the
        # difference of two, three errors are 1.06.
        (0.5, {0.1: False, 1.5: True}),
    ],
)
def test_worse_is_beyond_noise_and_a_share_of_what_was_learned(
    data_dir: DataDir, level: float, is_worse_by_shift: dict[float, bool]
) -> None:
    shifts = dict(zip(("inductor", "eager", "aot_eager"), is_worse_by_shift, strict=False))
    spec = experiment_spec(num_steps=80, backends=tuple(shifts))
    for label in ("baseline", "control", *shifts):
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(data_sha256="other" if label in shifts else "bb")
        run.blocks([0.2] * 8, noisy(level, shifts.get(label, 0.0)), 3.0).end()
    comparison = compared(data_dir)
    for label, shift in shifts.items():
        is_worse = row_of(comparison, label).shortfall is not None
        assert is_worse is is_worse_by_shift[shift], shift


def test_an_equal_training_that_strays_as_far_excuses_a_worse_loss(data_dir: DataDir) -> None:
    """The control ends 0.2 above the baseline: 0.2 is its distance from the mean of the others."""
    spec = experiment_spec(num_steps=80)
    for label, shift in {"baseline": 0.0, "control": 0.2, "inductor": 0.4}.items():
        run = Recording(data_dir.runs, label, spec).claim()
        run.start(data_sha256="other" if label == "inductor" else "bb")
        run.blocks([0.2] * 8, noisy(0.0, shift), 3.0).end()
    assert row_of(compared(data_dir), "inductor").shortfall is None


def test_a_shortfall_is_said_with_its_numbers() -> None:
    worse = Shortfall(quantity="final_loss", value=0.4881, expected=0.08828)
    wrong = rated(
        "a", "faster", 6.0, 4.0, 9.0, parity=unknown_parity("other samples"), shortfall=worse
    )
    planned = answered(20_000, wrong)
    assert spoken(planned) == (
        "Nothing worked: a cannot be trusted: its final loss is 0.4881 instead of 0.08828, and it "
        "is not known whether it learns the same."
    )


def test_the_page_says_the_sentence_of_the_terminal(data_dir: DataDir) -> None:
    record_unknown(data_dir.runs, falling_losses(80), 0.8)
    with Store.in_memory(data_dir) as store:
        report = content(store, EXPERIMENT_ID)
    sentence = spoken(own_plan(report.comparison))
    assert unescape(without_links(report.page.headline)) == sentence
