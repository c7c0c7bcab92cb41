"""Why a search ends without a training that confirms its answer: it was stopped, nothing gained, or
its script ended and could not start again."""

from breakeven.runner.protocol.events import each_event
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import RunState, state_words
from breakeven.runner.specs.experiment import ExperimentSpec

UNCONFIRMED = "No candidate gained enough to be confirmed by a training."
TOO_SHORT = (
    "The script ended before the search had tried all candidates, and could not start again: let "
    "it train longer, or give a smaller --block-steps."
)
STOPPED = "The search was stopped. No training has confirmed its best candidate so far."


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
    return TOO_SHORT


def why_unconfirmed(baseline: RunState) -> str:
    """Why no training confirms an answer of a search, whose baseline ended in this state."""
    if baseline is RunState.CANCELLED:
        return STOPPED
    if baseline.ended_early:
        how = state_words(baseline)
        return f"The baseline ended early ({how}), so the search has no answer to confirm."
    return UNCONFIRMED
