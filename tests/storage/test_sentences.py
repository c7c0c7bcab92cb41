"""Sentences have figures, and every kind of finding has a sentence."""

from typing import Any, get_args

import pytest

from breakeven.runner.protocol.states import RunState
from breakeven.storage.numbers.sentences import Figure, Sentence, figure, first_few, joined, say
from breakeven.storage.profile.findings import CostFinding
from breakeven.storage.profile.findings import Kind as ProfileKind
from breakeven.storage.statistics.as_good import Outcome
from breakeven.storage.statistics.outcomes import Reading
from breakeven.storage.statistics.parity import FindingKind, Parity, ParityFinding
from breakeven.storage.statistics.random_numbers import DropoutFault
from breakeven.storage.words.findings import finding_words
from breakeven.storage.words.parity import parity_words


def test_a_figure_is_written_as_its_number_is_everywhere() -> None:
    assert figure("noise_floor", 0.0314) == Figure("noise_floor", "3.1 %")


@pytest.mark.parametrize("value", ["3", True, [3], object()])
def test_a_figure_of_a_number_takes_numbers_alone(value: object) -> None:
    with pytest.raises(TypeError):
        figure("step_seconds", value)


def test_adjacent_texts_become_one() -> None:
    """So that nothing foreign is split where it would be read in two halves."""
    speed = Figure("speedup", "1.50x")
    inner = say("a {b} <[", " is at ", speed)
    assert inner == Sentence(("a {b} <[ is at ", speed))
    assert say("(", inner, "), ", "c") == Sentence(("(a {b} <[ is at ", speed, "), c"))
    assert joined(["a", speed, "", "b"], ", ").parts == ("a, ", speed, ", , b")


def test_of_many_words_the_first_few_are_named() -> None:
    assert str(first_few(["a", "b", "c"])) == "a, b, c"
    assert str(first_few(["a", "b", "c", "d", "e"])) == "a, b, c and 2 more"


DONE = {"steps_done": 3, "num_steps": 40}
READING = Reading(
    quantity="loss",
    first_step=100,
    last_step=199,
    value=2.0,
    expected=1.0,
    interval=0.5,
    learned=3.0,
)
OUTCOME = Outcome(
    quantity="loss",
    step=200,
    value=2.1,
    expected=2.0,
    interval=0.2,
    margin=0.02,
    num_controls=1,
    num_judged=1,
    learned=None,
)
DATA = {"first_step": 3, "last_alike": 1, "generators": ["cpu"]}
BAND = {"max_ratio_to_band": 2.0, "first_step_outside": 7, "band_steps": 9, "num_steps": 40}
PARITY_FINDINGS: dict[FindingKind, dict[str, Any]] = {
    "another model": {"size": 16, "baseline_size": 8},
    "other batch": {"times": 2, "baseline_size": 8},
    "another loss": {"value": 1.0, "expected": 2.0},
    "begins ahead": {"value": 1.0, "expected": 2.0},
    "another function": {"value": 1.9, "expected": 2.0},
    "other evaluation": {},
    "losses are worse": {"value": 2.1, "expected": 2.0},
    "outcome": {"outcome": OUTCOME},
    "also worse": {"quantity": "accuracy", "value": 0.9, "expected": 0.94},
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
    "shapes_vary": {
        "distinct": 57,
        "calls": 80,
        "most_common": 5,
        "last_new": 78,
        "varying": [],
        "times": 1,
        "total_seconds": 3.0,
        "is_over": False,
        "has_graphs": True,
    },
    "fell_back": {"op": "aten::index_add_", "kernel": "k", "kernel_seconds": 7e-3},
    "optimizer_compiled_long": {"optimizer_seconds": 190.0, "rest_seconds": 40.0},
    "copied_each_step": {"calls": 9.0, "waits": True},
}


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
