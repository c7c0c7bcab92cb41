"""Sentences from templates: slots have types, and every kind of fact has a message."""

from typing import Any, get_args

import pytest

from breakeven.runner.protocol.states import RunState
from breakeven.storage.comparison.caution import Caution, Kind
from breakeven.storage.numbers.sentences import Figure, Sentence, figure, fill, joined
from breakeven.storage.profile.findings import CostFinding
from breakeven.storage.profile.findings import Kind as ProfileKind
from breakeven.storage.statistics.outcomes import Reading
from breakeven.storage.statistics.parity import FindingKind, Parity, ParityFinding
from breakeven.storage.statistics.random_numbers import DropoutFault
from breakeven.storage.words.findings import finding_words
from breakeven.storage.words.parity import parity_words
from breakeven.storage.words.warnings import caution_words
from breakeven.views.shared.links import sentence

NOISY = Caution(kind="noisy", figures={"noise_floor": 0.0314})


def test_a_figure_is_written_as_its_number_is_everywhere() -> None:
    assert figure("noise_floor", 0.0314) == Figure("noise_floor", "3.1 %")
    assert fill("{noise:noise_floor}", noise=0.0314) == Sentence((Figure("noise_floor", "3.1 %"),))


def test_adjacent_texts_become_one() -> None:
    """So that nothing foreign is split where it would be read in two halves."""
    speed = Figure("speedup", "1.50x")
    inner = fill("{run} is at {speed}", run="a {b} <[", speed=speed)
    assert inner == Sentence(("a {b} <[ is at ", speed))
    assert fill("({inner}), {rest}", inner=inner, rest="c") == Sentence(
        ("(a {b} <[ is at ", speed, "), c")
    )
    assert joined(["a", speed, "", "b"], ", ").parts == ("a, ", speed, ", , b")


@pytest.mark.parametrize(
    ("template", "slots", "words"),
    [
        ("{runs} ({n:,})", {"runs": ["a", "b"], "n": 1200}, "a, b (1,200)"),
        ("by {share:+.1%}", {"share": 0.05}, "by +5.0 %"),
        ("ended<: {why:recorded}>.", {"why": "Killed."}, "ended: Killed."),
        ("ended<: {why:recorded}>.", {"why": None}, "ended."),
        ("[step {at:d}< of {all:d}>](step)", {"at": 3, "all": 0}, "step 3"),
        ("<{old:?}from {at:d} on><{old:!}now>", {"old": True, "at": 0}, "from 0 on"),
        ("<{old:?}from {at:d} on><{old:!}now>", {"old": False, "at": 0}, "now"),
    ],
)
def test_options_and_formats(template: str, slots: dict[str, Any], words: str) -> None:
    assert str(fill(template, **slots)) == words


@pytest.mark.parametrize(
    ("template", "values"),
    [
        ("{n}", (None, 3, True, [3], object())),
        ("{n:d}", ("3", True, [3], object())),
        ("{n:step_seconds}", ("3", True, [3], object())),
    ],
)
def test_a_slot_takes_its_type_alone(template: str, values: tuple[object, ...]) -> None:
    for value in values:
        with pytest.raises(TypeError):
            fill(template, n=value)


def test_a_page_links_the_figures_of_a_caution_and_nothing_else() -> None:
    noisy = caution_words(NOISY)
    assert "differ by up to [3.1 %](definitions#noise_floor), and" in sentence(noisy)
    assert "differ by up to 3.1 %, and" in str(noisy)
    foreign = Caution(
        kind="ended early",
        runs={
            "[5 s](x)": {
                "state": "failed",
                "reason": None,
                "steps_done": 3,
                "num_steps": 40,
                "role": "backend",
            }
        },
    )
    page = sentence(caution_words(foreign))
    assert page.startswith("&#91;5 s&#93;(x) failed at [step 3 of 40](")
    assert page.count("](") == 1


def test_a_recorded_text_with_numbers_leads_as_a_whole_to_what_notes_are() -> None:
    notes = [Caution(kind="note", figures={"text": text}) for text in ("It left 3 out.", "Off.")]
    assert [sentence(caution_words(note)) for note in notes] == [
        "[It left 3 out.](definitions#cautions)",
        "Off.",
    ]


def caution(kind: Kind, facts: dict[str, Any] | None = None, **figures: Any) -> Caution:
    return Caution(kind=kind, runs={} if facts is None else {"a": facts}, figures=figures)


DONE = {"steps_done": 3, "num_steps": 40}
SEEN = {"num_seen": 2, "num_looked": 12}
OTHERS = ({"name": None, "pid": 7, "memory_bytes": 2**31},)
ALL_CAUTIONS = [
    caution("missing runs", {}, lacks_baseline=True),
    caution(
        "ended early",
        {
            "state": RunState.FAILED,
            "reason": "Killed by 9",
            "role": "backend",
            "num_rounds": 8,
            **DONE,
        },
    ),
    caution("loss not finite", {"step": 7}),
    caution("not over", {"state": RunState.RUNNING, **DONE}),
    caution("different lengths", {"num_steps": 30}, clock_reads=["train.py:7"]),
    caution("stopped", {"step": 7, "num_steps": 40, "reason": "no better"}),
    caution("resumed", {"steps": (7,), "has_compiled": True, "moves": ((7, 1, 2),)}),
    caution("repeated lines", {"num_lines": 1}),
    caution("missing lines", {"num_lines": 1200}),
    caution("different setting", {"value": "x" * 70}, setting="host"),
    caution(
        "different sizes", {"num_rounds": 2, "of": "tokens", "size": 9.5, "baseline_size": 8.0}
    ),
    caution("fallback", experiment_id="20261122"),
    caution("sequential"),
    caution("compiled together"),
    caution(
        "no control",
        state=RunState.QUEUED,
        was_asked_for=True,
        is_inference=False,
        environment=None,
    ),
    NOISY,
    caution("few rounds", {"num_rounds": 3}),
    caution("nothing compiled", {}, is_script=True),
    caution(
        "given up",
        {
            "functions": [{"name": "f", "place": "a.py:3", "is_part": True}],
            "reason": "Unsupported.",
            "is_all": True,
        },
    ),
    caution(
        "compiles throughout",
        {
            "is_code": True,
            "num_compiled_steps": 30,
            "steps_done": 40,
            "compiled_step_seconds": 0.5,
            "baseline_step_seconds": None,
        },
    ),
    caution("operations unknown", names=["a::b"]),
    caution("answers not compared", {"error": ""}),
    caution("measuring ended", num_rounds=[8, 9], repeats=3, reason="time is over"),
    caution("candidates ended", {"reason": "60 rounds show no gain over inductor"}),
    caution("search ended", num_tried=7, reason="no candidate is left"),
    caution("confirms", experiment_id="20261125"),
    caution("wide intervals", {"width": 0.05}, target_width=0.02, repeats=1),
    caution("single repeats", {}, repeats=3),
    caution("latency measured once", {}),
    caution("rounds not added", {}, reason="the model is another one"),
    caution("rounds added", {}, num_added=20, num_rounds=50),
    caution("note", text="It left 3 out."),
    caution("strangers unknown"),
    caution("warmed up", begin=30.0, end=55.5),
    caution("throttled", {**SEEN, "held_back": ["heat"]}, processes=()),
    caution("shared device", {**SEEN, "was_before": False}, processes=OTHERS),
    caution("shared CPU", {"others_cpu_share": 0.4, "num_cpus": 2}, processes=OTHERS),
    caution("stolen CPU", {"stolen_cpu_share": 0.4}, processes=()),
    caution("CPU quota", SEEN, processes=()),
    caution(
        "other clock", {"sm_clock_mhz": 900.0, "baseline": 1000.0, "change": -0.1}, processes=()
    ),
    caution(
        "other frequency",
        {"cpu_frequency_mhz": 9.0, "baseline": 10.0, "change": -0.1},
        processes=(),
    ),
    caution("many threads", {"num_threads": 8, "num_cpus": 2}, processes=()),
]

READING = Reading(
    quantity="loss",
    first_step=100,
    last_step=199,
    value=2.0,
    expected=1.0,
    interval=0.5,
    learned=3.0,
)
DATA = {"first_step": 3, "last_alike": 1, "generators": ["cpu"]}
BAND = {"max_ratio_to_band": 2.0, "first_step_outside": 7, "band_steps": 9, "num_steps": 40}
PARITY_FINDINGS: dict[FindingKind, dict[str, Any]] = {
    "other batch": {
        "size": 16,
        "baseline_size": 8,
        "metric": "accuracy",
        "value": 0.9,
        "expected": 0.94,
        "is_worse": False,
    },
    "other inputs": DATA,
    "not repeatable": DATA | {"generators": []},
    "far shorter": {"steps_done": 30, "num_steps": 80},
    "not repeated": {"num_trials": 2, "step": 4},
    "other settings": {
        "first_step": 3,
        "last_alike": 1,
        "settings": ["lr", "rho"],
        "is_control": True,
        "clock_reads": ["train.py:3"],
    },
    "inside band": BAND,
    "outside band": BAND,
    "hardly outside": BAND | {"num_controls": 2, "control_seconds": 90.0},
    "not finite": {"first_step_outside": 7},
    "outside later": {"reading": READING},
    "too far apart": {"reading": READING},
    "rehearsal": BAND | {"verdict": "unknown"},
    "dropout wrong": {
        "count": 2,
        "fault": DropoutFault(
            what="share",
            number=0,
            num_dropouts=4,
            operation="attention",
            p=0.1,
            value=0.2,
            expected=0.1,
        ),
    },
    "redraws differ": {"tensor": None, "size": 2.0, "what": "length", "num_divisions": 1000},
    "inference wrong": {
        "name": "loss",
        "value": 1.0,
        "value_compiled": 2.0,
        "step": 80,
        "split": "validation",
    },
    "answers wrong": {
        "split": "test",
        "wrong_classes": 1,
        "wrong": 2,
        "samples": [4, 5],
        "difference": 0.2,
        "tolerance": 0.1,
        "step": 80,
        "compared": 64,
    },
    "ended early": DONE | {"role": "control", "state": RunState.LOST},
}
PROFILE_FINDINGS: dict[ProfileKind, dict[str, Any]] = {
    "attention_unfused": {
        "fused_seconds": 1e-3,
        "softmax_seconds": 2e-3,
        "product_seconds": 3e-3,
        "float32_seconds": 1e-3,
    },
    "float32_products": {"precision": "bf16", "kernel": "k"},
    "device_idle": {"launches": 900.0, "replays_graphs": False},
    "underfilled": {"batch_size": 8},
    "given_up": {"functions": [], "lines": ["a.py:3"], "operators": [], "reason": "print"},
    "graph_breaks": {
        "lines": ["a.py:3"],
        "between_seconds": 1e-3,
        "reason": "print",
        "operators": [],
    },
    "recompiled": {
        "function": "f",
        "times": 3,
        "total_seconds": 9.0,
        "reason": "shape",
        "is_over": True,
    },
    "padding": {"padding_share": 0.3},
    "small_kernels": {"op": "aten::add", "calls": 90.0, "phase": "forward", "kernel_seconds": 1e-3},
    "costly_kernel": {
        "kernel": "k",
        "kernel_seconds": 9e-3,
        "work_class": "matmul_fp8",
        "baseline_seconds": 1e-3,
    },
    "optimizer_unfused": {"kernels": 400.0},
    "fell_back": {"op": "aten::index_add_", "kernel": "k", "kernel_seconds": 7e-3},
    "optimizer_compiled_long": {"optimizer_seconds": 190.0, "rest_seconds": 40.0},
    "copied_each_step": {"calls": 9.0, "waits": True},
}


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_of_caution_has_a_message_with_all_slots_filled(kind: Kind) -> None:
    (caution,) = (caution for caution in ALL_CAUTIONS if caution.kind == kind)
    words = str(caution_words(caution))
    assert words.endswith(".") and not set(words) & set("{}<>")


@pytest.mark.parametrize("kind", get_args(FindingKind))
def test_every_kind_of_finding_of_parity_has_a_message(kind: FindingKind) -> None:
    finding = ParityFinding(kind=kind, figures=PARITY_FINDINGS.get(kind, {}))
    words = str(
        parity_words(
            Parity(
                verdict="unknown",
                first_step_outside=None,
                max_ratio_to_band=None,
                steps_compared=0,
                findings=(finding,),
            )
        )
    )
    assert words and not set(words) & set("{}<>")


@pytest.mark.parametrize("kind", get_args(ProfileKind))
def test_every_kind_of_finding_of_a_profile_has_a_message(kind: ProfileKind) -> None:
    facts = PROFILE_FINDINGS.get(kind, {})
    words = str(finding_words(CostFinding(kind=kind, label="a", seconds=None, facts=facts)))
    assert words and not set(words) & set("{}<>")
