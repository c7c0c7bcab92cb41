"""Profiles of runs on several devices: what sending itself takes, apart from waiting for others.

A rank that comes early to a collective waits in it, and its kernel runs all the while, for as long
as others dawdle under the profiler. So sending takes what it takes the rank that waits least,
beyond what its own computing hides. How long a timed step waits is told by the clock: as idle time.
"""

import pandas as pd

SENDS = "nccl"
"""In the name of each kernel that sends."""


def turns_without_waiting(
    turns: pd.DataFrame, kernels: pd.DataFrame, ranks: pd.DataFrame
) -> pd.DataFrame:
    """`queries.profiles` with `busy_seconds` of computing and sending, and `underfilled_seconds`
    without the kernels that send, which fill no device. Of runs on one device the same."""
    sends = kernels["name"].str.contains(SENDS, case=False, na=False)
    if not sends.any():
        return turns
    # The last word of a turn: a journal may say it twice.
    computing = ranks[ranks["rank"] == 0].groupby(["label", "round"])["compute_seconds"].last()
    busy = computing + sending_seconds(ranks)
    few_blocks = kernels[sends].groupby(["label", "round"])["seconds"].sum()
    whose = pd.MultiIndex.from_frame(turns[["label", "round"]])
    known = busy.reindex(whose).to_numpy()
    underfilled = (
        turns["underfilled_seconds"] - few_blocks.reindex(whose, fill_value=0.0).to_numpy()
    )
    return turns.assign(
        busy_seconds=turns["busy_seconds"].where(pd.isna(known), known),
        underfilled_seconds=underfilled.clip(lower=0.0),
    )


def kernels_without_waiting(
    kernels: pd.DataFrame, turn: pd.Series, ranks: pd.DataFrame
) -> pd.DataFrame:
    """Kernels of a turn, of which those that ran at once share the time, with the seconds that
    computing and sending take as in `turns_without_waiting`. On one device the same."""
    sending = sending_seconds(ranks).get((turn["label"], turn["round"]))
    sends = kernels["work_class"] == "communication"
    if sending is None or pd.isna(sending) or not sends.any():
        return kernels
    totals = kernels.groupby(sends)["seconds"].sum()
    factors = {True: sending / totals[True]}
    if False in totals:
        factors[False] = (turn["busy_seconds"] - sending) / totals[False]
    return kernels.assign(seconds=kernels["seconds"] * sends.map(factors))


def sending_seconds(ranks: pd.DataFrame) -> pd.Series:
    """Seconds a step by label and round, of `queries.rank_profiles`; NaN where a rank is silent."""
    return ranks.groupby(["label", "round"])["exposed_seconds"].agg(
        lambda seconds: seconds.min(skipna=False)
    )
