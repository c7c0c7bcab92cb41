"""Whether a compiled model gives the answers that the same weights give without a compiler.

Both answered the same samples, so each answer is compared with its own: farther apart than rounding
goes is wrong, be it a single one (docs/metrics.md, `answers`). The run compares them while both are
there (`runner/worker/step/paired_answers.py`), and this judges what it wrote down.
"""

import pandas as pd

from breakeven.storage.statistics.parity import Finding

FIGURES = ["step", "split", "compared", "wrong", "wrong_classes", "margin", "difference",
           "tolerance"]  # fmt: skip


def judge_answers(answers: pd.DataFrame) -> Finding | None:
    """The fault, from the comparison with the most wrong answers; None if there is none.

    `answers`: as `storage.queries.answers` returns them. An entry that lacks a figure was not
    written by a run, and is not believed.
    """
    whole = answers.dropna(subset=[*FIGURES, "samples"])
    wrong = whole[whole["wrong"] > 0]
    if wrong.empty:
        return None
    worst = wrong.sort_values(["wrong_classes", "wrong"], kind="stable").iloc[-1]
    figures = {**worst[FIGURES].to_dict(), "samples": list(worst["samples"])}
    return Finding(kind="answers wrong", figures=figures)
