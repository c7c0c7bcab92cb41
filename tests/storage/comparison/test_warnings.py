"""Every warning has a sentence, and pages link its figures to their definitions."""

import pytest

from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.compiler_warnings import (
    CachesMissed,
    CompilerGaveUp,
    CompilesThroughout,
    GivenUpFunction,
    LatencyMeasuredOnce,
    NothingCompiled,
)
from breakeven.storage.comparison.device_warnings import (
    DISTURBANCES,
    CpuQuota,
    Disturbance,
    Disturbed,
    ManyThreads,
    OtherClock,
    OtherFrequency,
    OtherProcess,
    SharedCpu,
    SharedDevice,
    StolenCpu,
    StrangersUnknown,
    Throttled,
    WarmedUp,
)
from breakeven.storage.comparison.measuring_warnings import (
    AnswersNotCompared,
    CandidatesEnded,
    CompiledTogether,
    Confirms,
    Fallback,
    FewRounds,
    MeasuringEnded,
    NoControl,
    Noisy,
    OfFamily,
    OperationsUnknown,
    RoundsAdded,
    SearchEnded,
    Sequential,
    SingleRepeats,
    WideIntervals,
)
from breakeven.storage.comparison.run_warnings import (
    DifferentLengths,
    DifferentSetting,
    DifferentSizes,
    EndedEarly,
    LossNotFinite,
    MissingLines,
    MissingRuns,
    NotContinued,
    RepeatedLines,
    Resumed,
    Stopped,
    UnequalWork,
    Unfinished,
    WeightsOfRanks,
)
from breakeven.storage.comparison.warnings import ComparisonWarning, Recorded, classes_of_warnings
from breakeven.storage.statistics.ranks import RanksApart
from breakeven.views.shared.definition_links import linked, sentence

DISTURBED: list[Disturbance] = [
    Throttled(num_seen=2, num_looked=12, held_back=("heat",)),
    SharedDevice(num_seen=2, num_looked=12, was_before=False),
    SharedCpu(others_cpu_share=0.4, num_cpus=2),
    StolenCpu(stolen_cpu_share=0.4),
    CpuQuota(num_seen=2, num_looked=12),
    OtherClock(mhz=900.0, baseline_mhz=1000.0),
    OtherFrequency(mhz=9.0, baseline_mhz=10.0),
    ManyThreads(num_threads=8, num_cpus=2),
]
OTHERS = (OtherProcess(name="python", pid=7, memory_bytes=2**31),)
NOISY = Noisy(noise_floor=0.0314)
WARNINGS = [
    *(Disturbed(runs={"a": disturbance}, processes=OTHERS) for disturbance in DISTURBED),
    MissingRuns(labels=("a",), lacks_baseline=True),
    EndedEarly(
        run="a",
        role="backend",
        state=RunState.FAILED,
        reason="Killed by 9",
        steps_done=3,
        num_steps=40,
        num_rounds=8,
    ),
    LossNotFinite(run="a", step=7),
    Unfinished(runs={"a": ("running", 3, 40)}),
    DifferentLengths(num_steps={"a": 30, "b": 40}, clock_reads=("train.py:7",)),
    Stopped(run="a", step=7, num_steps=40, reason="no better"),
    Resumed(run="a", steps=(7,), has_compiled=True, moves=((7, 1, 2),)),
    RepeatedLines(num_lines={"a": 1}),
    MissingLines(num_lines={"a": 1200}),
    DifferentSetting(setting="host", values={"a": "x" * 70, "b": None}),
    DifferentSizes(
        runs={"a": UnequalWork(num_rounds=2, unit="tokens", size=9.5, baseline_size=8.0)}
    ),
    Fallback(experiment_id="20261122"),
    OfFamily(family="agent-7", place=37, level=3.4e-5),
    Sequential(),
    CompiledTogether(),
    NoControl(state=RunState.QUEUED, was_requested=True, is_inference=False, environment=None),
    NOISY,
    FewRounds(num_rounds={"a": 3}),
    CachesMissed(run="a", misses=("Inductor (1 of 2)",), reasons=("the version of torch",)),
    NothingCompiled(labels=("a",), decides_scope=True),
    CompilerGaveUp(
        run="a",
        functions=(GivenUpFunction(name="f", place="a.py:3", operator=None, is_part=True),),
        reason="Unsupported.",
        is_all=True,
    ),
    CompilesThroughout(
        run="a",
        is_code=True,
        num_compiled_steps=30,
        steps_done=40,
        compiled_step_seconds=0.5,
        baseline_step_seconds=None,
    ),
    OperationsUnknown(names=("a::b",)),
    AnswersNotCompared(errors={"a": ""}),
    MeasuringEnded(num_rounds=(8, 9), repeats=3, reason="time is over"),
    CandidatesEnded(reasons={"a": "60 rounds show no gain over inductor"}),
    SearchEnded(num_tried=7, reason="no candidate is left"),
    Confirms(experiment_id="20261125"),
    WideIntervals(widths={"a": 0.05}, target_width=0.02, repeats=1),
    SingleRepeats(labels=("a",), repeats=3),
    LatencyMeasuredOnce(labels=("a",)),
    NotContinued(labels=("a",), reason="the model is another one"),
    RoundsAdded(labels=("a",), num_added=20, num_rounds=50),
    Recorded(text="It left 3 out."),
    StrangersUnknown(),
    WarmedUp(begin=30.0, end=55.5),
    WeightsOfRanks(run="a", apart=RanksApart(ranks=(1,), is_named=True, first_step=0, last_step=9)),
]


@pytest.mark.parametrize("warning", WARNINGS, ids=lambda warning: warning.kind)
def test_a_warning_says_its_fact_and_what_helps(warning: ComparisonWarning) -> None:
    words = str(warning.words())
    assert words.startswith(str(warning.sentence())) and words.endswith(warning.remedy())
    assert words.endswith(".") and not {"{", "}", "None"} & {*words, *words.split()}


def test_every_class_of_warnings_is_among_them() -> None:
    assert {type(warning) for warning in WARNINGS} == set(classes_of_warnings())
    assert [type(disturbance) for disturbance in DISTURBED] == list(DISTURBANCES)


def test_a_page_links_the_figures_of_a_warning_and_nothing_else() -> None:
    assert f"differ by up to {linked('noise_floor', '3.1 %')}, and" in sentence(NOISY.words())
    assert "differ by up to 3.1 %, and" in str(NOISY.words())
    foreign = EndedEarly(
        run="[5 s](x)",
        role="backend",
        state=RunState.FAILED,
        reason=None,
        steps_done=3,
        num_steps=40,
    )
    page = sentence(foreign.words())
    assert page.startswith("&#91;5 s&#93;(x) failed at [step 3 of 40](")
    assert page.count("](") == 1


def test_a_recorded_text_with_numbers_leads_as_a_whole_to_what_warnings_are() -> None:
    warnings = [Recorded(text=text) for text in ("It left 3 out.", "Off.")]
    assert [sentence(warning.words()) for warning in warnings] == [
        linked("warnings", "It left 3 out."),
        "Off.",
    ]
