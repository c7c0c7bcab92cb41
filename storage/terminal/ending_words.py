"""How a run ended before its end, in words: `failed at step 20 of 50`."""

from collections.abc import Mapping
from typing import Any

from breakeven.runner.folders.states import RunState
from breakeven.storage.numbers.sentences import Figure, Sentence, said

VERBS = {
    RunState.FAILED: "failed",
    RunState.CANCELLED: "was cancelled",
    RunState.TIMEOUT: "was stopped by its time limit",
    RunState.OUT_OF_MEMORY: "ran out of memory",
    RunState.LOST: "was lost",
}


def ending_words(facts: Mapping[str, Any]) -> Sentence:
    """`facts`: `state`, `steps_done`, and `num_steps`, 0 where nobody knows how many."""
    done, num_steps = facts["steps_done"], facts["num_steps"]
    of_all = f" of {num_steps}" if num_steps else ""
    at = said("at {at}", at=Figure("num_steps", f"step {done}{of_all}"))
    if done == 0:
        at = said("before its first step")
    elif 0 < num_steps <= done:
        at = said("after the last of its {all}", all=Figure("num_steps", f"{num_steps} steps"))
    return said("{verb} {at}", verb=VERBS[facts["state"]], at=at)
