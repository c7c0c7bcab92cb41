"""Why a search ends without a training that confirms its answer: it was stopped, nothing gained, or
its script was too short; and what lets a script train longer."""

import re
from contextlib import suppress
from pathlib import PurePath

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.experiment import ExperimentSpec

UNCONFIRMED = "No candidate gained enough to be confirmed by a training."
STOPPED = "The search was stopped. No training has confirmed its best candidate so far."
LENGTH_OPTION = re.compile(r"""["'](--[\w-]*(?:step|epoch|iter|update)\w*)["']""")
"""An option, in the text of a script, whose name says that it gives a length."""
OTHER_LENGTHS = re.compile(r"log|eval|val|save|print|warm|accum|every|check|decay")
"""Parts of the names of options that give another length than that of the training."""
MAX_BYTES = 2**20
MAX_NAMED = 3


def why_too_short(spec: ExperimentSpec, baseline: RunDir) -> str:
    """Why a search over a script could not try all candidates, and what to do; empty if the script
    did not end first."""
    if (
        not spec.kind.has_candidates
        or spec.workload.has_known_length
        or baseline.state is not RunState.FINISHED
    ):
        return ""
    if any(event["kind"] == "stopped" for event in each_event(baseline.events_file)):
        return ""
    return (
        "The script ended before the search had tried all candidates: let it train longer "
        f"({_how(spec, baseline)}), or give a smaller --block-steps."
    )


def _how(spec: ExperimentSpec, baseline: RunDir) -> str:
    if spec.script.steps:
        return f"its limit is {spec.script.steps:,} steps: --set script.steps=N"
    options = length_options(spec, baseline)
    if options:
        return f"its own option {' or '.join(options)}"
    return "it names no option for its length"


def length_options(spec: ExperimentSpec, run: RunDir) -> list[str]:
    """The script's own options for its length, as its copy in the run folder names them."""
    text = ""
    with suppress(RunnerError, OSError):
        name = PurePath(spec.model.script or "").name
        with run.open(f"artifacts/source/{name}") as copy:
            text = copy.read(MAX_BYTES).decode(errors="replace")
    options = [
        name
        for name in dict.fromkeys(LENGTH_OPTION.findall(text))
        if not OTHER_LENGTHS.search(name)
    ]
    return options[:MAX_NAMED]


def why_unconfirmed(baseline: RunState) -> str:
    """Why no training confirms an answer of a search, whose baseline ended in this state."""
    if baseline is RunState.CANCELLED:
        return STOPPED
    if baseline.ended_early:
        how = state_words(baseline)
        return f"The baseline ended early ({how}), so the search has no answer to confirm."
    return UNCONFIRMED
