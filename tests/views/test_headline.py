"""Headlines agree with the verdicts: every verdict, mixtures, and results that do not count."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.cold_and_warm import ColdWarm
from breakeven.storage.comparison.correctness import Check
from breakeven.storage.comparison.plan import plan
from breakeven.storage.comparison.results import Result, without_speed
from breakeven.storage.numbers.formats import DASH
from breakeven.storage.statistics.break_even import BreakEven
from breakeven.storage.statistics.parity import Parity, ParityFinding
from breakeven.storage.statistics.speedups import Ratio
from breakeven.storage.suite_runs.groups import Cell, Group, Outcome, groups, suite_changes
from breakeven.views.comparison.first_screen import cards_html
from breakeven.views.comparison.headline import evidence, headline, parity_reasons
from breakeven.views.report import suite_tables
from breakeven.views.scenarios.accuracy import tensors_headline
from breakeven.views.scenarios.cache import caches_headline
from tests.helpers.comparisons import comparison, pays, result
from tests.helpers.pages import without_links

NOT_FASTER = ("same", "unsure", "slower")


def rated(label: str, median: float, verdict: str, parity: str = "holds", **more: Any) -> Result:
    ratio = Ratio(median=median, low=median - 0.1, high=median + 0.1, p_value=0.01, n=9)
    judged = Parity(
        verdict=parity,
        first_step_outside=None,
        max_ratio_to_band=None,
        steps_compared=60,
        findings=(ParityFinding(kind="not begun"),),
    )
    fields = {"speedup": ratio, "speed_verdict": verdict, "parity": judged, **more}
    return result(label, **fields)


def said(*backends: Result, baseline: RunState = RunState.FINISHED) -> str:
    compared = comparison(result("baseline", state=baseline), *backends)
    return without_links(evidence(compared, plan(compared, compared.spec.num_steps)))


def planned(num_steps: int | None, break_even: BreakEven) -> str:
    """Steps of 0.2 s without a compiler, and a backend with that break-even."""
    compared = comparison(
        result("baseline", step_seconds=0.2),
        rated("a", 2.0, "faster", break_even=break_even, num_steps=30),
    )
    return without_links(evidence(compared, plan(compared, num_steps)))


def test_a_search_names_its_best_candidate_also_after_a_few_rounds_and_none_that_failed() -> None:
    few = Ratio(median=2.5, low=None, high=None, p_value=None, n=3)
    base = result("baseline", step_seconds=0.2)
    fast = rated("a", 2.5, "unsure", speedup=few, step_seconds=0.08)
    slow = rated("b", 0.8, "unsure", speedup=replace(few, median=0.8), step_seconds=0.25)
    others = result("c", state=RunState.FAILED), result("d", state=RunState.RUNNING)
    compared = comparison(base, fast, slow, *others, scenario="tune")
    assert without_links(evidence(compared, plan(compared, 1000))) == (
        "**a** was the best candidate, at 2.50x in only a few rounds."
    )


def test_a_candidate_that_a_search_ended_for_its_losses_is_not_trusted() -> None:
    base, wrong = result("baseline", step_seconds=0.2), {"ended_as_wrong": True}
    compared = comparison(base, rated("a", 2.5, "faster", **wrong), scenario="tune")
    planned = plan(compared, 1000)
    assert evidence(compared, planned) == "", "the answer says it"
    assert without_links(headline(compared, planned)) == (
        "Nothing worked: a cannot be trusted: its losses leave the band of equal trainings."
    )


FEW = Ratio(median=0.68, low=None, high=None, p_value=None, n=4)
THAN = "than without a compiler"


AT_08, AT_07 = "at 0.80x (0.70 to 0.90)", "at 0.70x (0.60 to 0.80)"


@pytest.mark.parametrize(
    ("backends", "sentence"),
    [
        ([rated("a", 0.8, "slower")], f"**a** {AT_08} is slower {THAN}."),
        (
            [rated("a", 0.68, "unsure", speedup=FEW)],
            f"**a** at 0.68x is not shown to be faster or slower {THAN}: too few rounds "
            "to tell (at least 6 are needed).",
        ),
        (
            [rated("a", 0.8, "same"), rated("b", 0.7, "same")],
            f"Every backend is as fast as without a compiler: **a** {AT_08} and **b** {AT_07}.",
        ),
        (
            [rated("a", 0.8, "unsure", p_holm=0.5), rated("b", 0.7, "unsure", p_holm=0.5)],
            f"**a** {AT_08} and **b** {AT_07} are not shown to be faster or slower {THAN}: the "
            "difference may be chance.",
        ),
        (
            [rated("a", 0.8, "unsure", p_holm=0.5), rated("b", 0.7, "slower")],
            f"No backend is shown to be faster {THAN}: **a** {AT_08} is inconclusive and **b** "
            f"{AT_07} is slower.",
        ),
        (
            [
                rated("wrong", 3.0, "faster", "broken"),
                rated("dead", 2.0, "faster", state=RunState.OUT_OF_MEMORY),
                rated("slow", 0.8, "slower"),
                result("late", state=RunState.RUNNING),
            ],
            f"**slow** {AT_08} is slower {THAN}. **wrong** does not count: its "
            "answers differ by more than rounding or chance explains. **dead** (out of memory, "
            "2.00x "
            "(1.90 to 2.10) until then) did not finish. **late**: no speed to compare yet.",
        ),
        ([result("a", state=RunState.FINISHED)], "No backend has a speed to compare."),
        ([result("a", state=RunState.RUNNING)], "No backend has a speed to compare yet."),
        ([result("a", state=RunState.FAILED)], ""),  # The answer says it, with its error below.
    ],
)
def test_backends_of_which_none_is_faster(backends: list[Result], sentence: str) -> None:
    assert said(*backends) == sentence


@pytest.mark.parametrize(
    ("backends", "start"),
    [
        (
            [rated("wrong", 3.0, "faster", "broken"), rated("too", 2.0, "faster", "broken")],
            "No backend can be trusted: **wrong**: its answers differ by more than rounding",
        ),
        (
            [
                rated("a", 0.9, "slower"),
                rated("b", 0.8, "slower"),
                rated("wrong", 3.0, "faster", "broken"),
            ],
            "Every backend that counts is slower than without a compiler: ",
        ),
        (
            [rated("fast", 2.0, "faster"), result("slow", state=RunState.CANCELLED)],
            "**fast** trains at 2.00x",
        ),
        # The backend with the fastest step need not take the least time.
        (
            [rated("a", 1.4, "faster"), rated("b", 1.2, "faster")],
            "**a** has the fastest step at 1.40x (1.30 to 1.50) the speed without a compiler",
        ),
    ],
)
def test_what_does_not_count_unmakes_nothing(backends: list[Result], start: str) -> None:
    assert said(*backends).startswith(start)


def test_the_reason_that_the_answer_gives_stands_once_in_plain_digits() -> None:
    figures = {"first_step_outside": 1, "max_ratio_to_band": 29_413.7}
    broken = Parity(
        verdict="broken", findings=(ParityFinding(kind="outside band", figures=figures),)
    )
    wrong = replace(rated("a", 6.5, "faster"), parity=broken)
    compared = comparison(result("baseline", state=RunState.FINISHED), wrong)
    planned = plan(compared, 20_000)
    assert "is up to 29,414 x the band off" in without_links(headline(compared, planned))
    assert parity_reasons(compared.results, planned) == []


def test_the_card_of_a_wrong_training_has_no_dashes_for_what_it_cannot_have() -> None:
    broken = Parity(verdict="broken", findings=(ParityFinding(kind="not begun"),))
    wrong = without_speed(replace(rated("inductor", 6.5, "faster"), parity=broken))
    compared = comparison(result("baseline", state=RunState.FINISHED, step_seconds=0.2), wrong)
    cards = cards_html(compared, plan(compared, 100))
    of_backend = cards[: cards.index("baseline</")]
    assert "broken" in of_backend and "Break-even" not in of_backend and "Total" not in of_backend
    assert DASH not in of_backend


def test_no_mixture_is_said_to_be_what_one_of_its_verdicts_denies() -> None:
    for verdicts in itertools.product(NOT_FASTER, repeat=3):
        runs = [
            rated(name, 0.9, verdict, p_holm=0.5)
            for name, verdict in zip("abc", verdicts, strict=True)
        ]
        text = said(*runs)
        assert ("as fast" in text) == ("same" in verdicts), verdicts
        claims_slower = "slower" in text.replace("faster or slower", "")
        assert claims_slower == ("slower" in verdicts), verdicts
        assert ("Every backend" in text) == (set(verdicts) in ({"same"}, {"slower"})), verdicts
        assert all(f"**{name}**" in text for name in "abc")


def test_a_baseline_that_did_not_finish_leaves_nothing_but_the_rounds_before() -> None:
    # The answer says once that there is no baseline to compare with.
    assert said(result("a", speed_verdict="unsure"), baseline=RunState.FAILED) == ""
    for verdict in ("faster", *NOT_FASTER):
        assert said(rated("a", 2.0, verdict), baseline=RunState.FAILED).startswith(
            "The baseline did not finish (failed); speeds come from the rounds before that. **a** "
        )


def test_the_fastest_is_told_with_what_parity_says_and_no_more() -> None:
    assert "It learns the same thing." in said(rated("a", 2.0, "faster"))
    unknown = said(rated("a", 2.0, "faster", "unknown"))
    assert "Whether it learns the same thing is not known." in unknown
    nothing = said(rated("a", 2.0, "faster", "nothing learned"))
    assert "Whether it learns the same thing cannot be tested, as nothing was learned." in nothing


@pytest.mark.parametrize(
    ("break_even", "words"),
    [
        (pays("reached", 50, 40, 60, seconds=9.0), "and has paid for its compiling after 50 steps"),
        (
            pays("reached", 50, 40, 61, seconds=9.0),
            "and pays for its compiling after 50 steps (40 to 61), about 9.00 s.",
        ),
        (pays("reached", 50, 40, math.inf), "and may pay for its compiling after 50 steps (40 to"),
        (pays("unsure", gain=-1.0), ", but it is open whether compiling ever pays off."),
    ],
)
def test_compiling_is_said_to_be_paid_for_as_far_as_the_interval_says(
    break_even: BreakEven, words: str
):
    assert words in said(rated("a", 2.0, "faster", break_even=break_even, num_steps=60))


@pytest.mark.parametrize(
    ("num_steps", "words"),
    [
        (
            39,
            "**a** trains at 2.00x (1.90 to 2.10) the speed without a compiler and pays for its "
            "compiling only after 50 steps (40 to 60), about",
        ),
        (
            61,
            "**a** trains at 2.00x (1.90 to 2.10) the speed without a compiler and pays for its "
            "compiling after 50 steps (40 to 60), about",
        ),
        (None, "**a** trains at 2.00x (1.90 to 2.10) the speed without a compiler and pays for"),
    ],
)
def test_the_evidence_says_when_compiling_pays_for_the_planned_length(
    num_steps: int | None, words: str
) -> None:
    assert planned(num_steps, pays("reached", 50, 40, 60, gain=0.1, seconds=10.0)).startswith(words)


def suite(*rows: tuple[str, str, tuple[float, ...]]) -> list[Group]:
    """Backend, part, and the speedups of its models."""
    return groups(
        [
            Outcome(
                cell=Cell(f"M{number}", "bf16", part, backend),  # type: ignore[arg-type]
                experiments={"speed": "x"},
                is_over=True,
                speedup=Ratio(median=speedup, low=speedup, high=speedup, p_value=0.001, n=9),
            )
            for backend, part, speedups in rows
            for number, speedup in enumerate(speedups)
        ]
    )


FAST, SLOW, SAME, UNSURE = (
    (1.3, 1.32, 1.28, 1.31),
    (0.7, 0.72, 0.68, 0.71),
    (1.001, 0.999, 1.002, 0.998),
    (0.5, 1.2, 0.7, 0.6),
)


def suite_headline(*rows: tuple[str, str, tuple[float, ...]]) -> str:
    return without_links(suite_tables.headline(suite(*rows)))


def test_a_suite_tells_the_fastest_backend_part_by_part_or_what_each_row_is() -> None:
    assert suite_headline(("eager", "training", UNSURE)).startswith(
        "**eager** in training (bf16, 4 of 4 models) at 0.71x (0.39 to 1.29) is not shown to be "
        "faster or slower than without a compiler: the difference may be chance"
    )
    text = suite_headline(
        ("inductor", "training", FAST),
        ("inductor", "inference", SLOW),
        ("eager", "training", SAME),
        ("cudagraphs", "inference", FAST),
    )
    assert text == (
        "**inductor** is faster than without a compiler in training (bf16, 4 of 4 models) at 1.30x "
        "(1.28 to 1.33) and slower in inference (bf16, 4 of 4 models) at 0.70x (0.68 to 0.73). "
        "Also faster: **cudagraphs** in inference (bf16, 4 of 4 models) at 1.30x (1.28 to 1.33)."
    )
    text = suite_headline(("eager", "training", SLOW), ("aot_eager", "training", SAME))
    assert text.startswith("No backend is shown to be faster than without a compiler: **aot_eager")
    assert " is as fast and **eager** in training" in text and text.endswith(" is slower.")


def test_that_nothing_got_worse_is_qualified_by_what_could_not_be_told() -> None:
    cell = Cell("M", "bf16", "training", "eager")
    wide = Ratio(median=1.0, low=0.3, high=3.0, p_value=0.9, n=9)
    outcome = Outcome(cell=cell, experiments={"speed": "x"}, is_over=True, speedup=wide)
    text = without_links(
        suite_tables.headline(groups([outcome]), suite_changes([outcome], [outcome]), "before")
    )
    assert text.endswith("Nothing got clearly worse since before. 1 cell cannot be judged.")


def check(label: str, status: str | None, part: str = "training") -> Check:
    return Check(
        label=label,
        state="finished",
        part=part,
        status=status,  # type: ignore[arg-type]
        message=None,
        tolerance=None,
        num_tensors=1,
        num_failed=0,
        worst=(),
        notes=(),
    )


@pytest.mark.parametrize(
    ("checks", "sentence"),
    [
        (
            [check("a", "pass")],
            "Every backend computes correct results in training, gradients included.",
        ),
        (
            [check("a", "OOM"), check("b", "fail_accuracy"), check("c", "pass")],
            "Wrong results: **b**. No results: **a** (OOM). Correct results: **c**.",
        ),
        (
            [check("a", "eager_two_runs_differ"), check("b", None)],
            "Nothing to check against, because the baseline or the model failed: **a** "
            "(eager_two_runs_differ). Not checked: **b**.",
        ),
        ([], "There is only the baseline: add a backend to check."),
    ],
)
def test_a_check_that_was_not_made_is_no_fault_and_a_fault_is_not_left_out(
    checks: list[Check], sentence: str
) -> None:
    headline = tensors_headline([check("baseline", "pass"), *checks])
    assert without_links(headline) == sentence


def caches(cold: float, warm: float) -> ColdWarm:
    return ColdWarm(backend="inductor", cold_seconds=(cold,), warm_seconds=(warm,))


def test_what_caches_saved_may_be_nothing() -> None:
    def headline_of(*backends: ColdWarm) -> str:
        return without_links(caches_headline([*backends], True))

    assert headline_of(caches(8.0, 2.0)) == (
        "Filled caches saved 75.0 % of the compile time of **inductor**: 2.00 s instead of 8.00 s "
        "(1 repeat)."
    )
    assert headline_of(caches(8.0, 9.0)).startswith(
        "Filled caches saved nothing: **inductor** took 9.00"
    )
    assert headline_of(caches(0.0, 0.0)) == "Nothing was compiled, so caches have nothing to save."
