"""The part of the form that says what each run does, where it does not simply train."""

from collections.abc import Callable

import streamlit as st

from breakeven.runner.specs.scenarios import SCENARIOS, ScenarioName
from breakeven.views.form.fields import Fields


def ask_scenario(fields: Fields) -> None:
    """The scenario, and then the fields that belong to it alone."""
    scenario = fields.ask(
        "scenario", "Scenario",
        " ".join(f"`{one.name}`: {one.text}" for one in SCENARIOS.values()),
    )  # fmt: skip
    if scenario in ASKED:
        ASKED[scenario](fields)


def _ask_speed(fields: Fields) -> None:
    st.caption(
        "The runs take turns on the same few batches. Once every speedup is known exactly enough, "
        "measuring ends by itself. The values below will do for a first look."
    )
    what, when, budget = st.columns(3)
    with what:
        fields.ask("speed.part", "What is timed",
                   "`training`: full optimizer steps. `inference`: only forward passes.",
                   )  # fmt: skip
        fields.ask("speed.batches", "Batches", "Steps go over so many batches again and again.")
        fields.ask("speed.warm_up_blocks", "Warm-up turns",
                   "First turns of each run; they do not count. Compiling falls here.")  # fmt: skip
    with when:
        fields.ask("speed.target_width", "Exact enough at",
                   "How wide the 95 % interval of every speedup may be: 0.02 is 2 % of it.",
                   )  # fmt: skip
        fields.ask("speed.min_rounds", "Rounds at least",
                   "So many are measured in any case. In a round every run has one turn.",
                   )  # fmt: skip
        fields.ask("speed.repeats", "Processes of each run",
                   "Starts everything anew so many times: two processes of the same program differ "
                   "in speed, too. Take 3 or more, or 1 for a quick answer.")  # fmt: skip
    with budget:
        fields.ask("speed.max_rounds", "Rounds at most",
                   "Ends measuring even if the answer is not exact enough.")  # fmt: skip
        fields.ask("speed.max_seconds", "Seconds at most",
                   "The same by the time that steps took, of all runs together; compiling and "
                   "warm-up are not counted.")  # fmt: skip


def _ask_accuracy(fields: Fields) -> None:
    parts, layers, tolerance, iterations = st.columns(4)
    with parts:
        fields.ask("accuracy.parts", "Parts")
    with layers:
        fields.ask("accuracy.layers", "Outputs of layers")
    with tolerance:
        fields.ask("accuracy.tolerance", "Tolerance",
                   empty="as the Dynamo harness has it")  # fmt: skip
    with iterations:
        fields.ask("accuracy.iterations", "Iterations")


def _ask_cache(fields: Fields) -> None:
    part, repeats, steps = st.columns(3)
    with part:
        fields.ask("cache.part", "What is compiled")
    with repeats:
        fields.ask("cache.repeats", "Cold and warm pairs")
    with steps:
        fields.ask("cache.steps", "Steps of each process")


ASKED: dict[ScenarioName, Callable[[Fields], None]] = {
    "speed": _ask_speed,
    "accuracy": _ask_accuracy,
    "cache": _ask_cache,
}
"""The fields of scenarios that have some of their own."""
