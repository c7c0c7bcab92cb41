"""A rank whose losses or weights leave those of the others is named with its step."""

import math
from typing import Any

import pandas as pd
import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec, ScriptSpec
from breakeven.storage.statistics.ranks import RanksApart, ranks_apart
from breakeven.storage.words.parity import parity_text, parity_words
from tests.helpers.comparisons import compared, warnings_of
from tests.helpers.journals import Recording, falling_losses

LOSSES = falling_losses(80)
SPEC = ExperimentSpec(
    name="mine",
    task="script",
    model=ModelSpec(source="script:/home/me/train.py"),
    data=DataSpec(source="script"),
    script=ScriptSpec(ranks=2),
    devices=("cpu", "cpu"),
    backends=("inductor",),
    block_steps=10,
)


def record(
    data_dir: DataDir,
    label: str,
    off: tuple[float, float],
    since: tuple[int, int] = (0, 0),
    apart_from: int = 80,
) -> None:
    """A run whose rank 1 has losses of 0.5 more; `off` is added to the losses of each rank from its
    step in `since` on. The weights differ after the step `apart_from`."""
    run = Recording(data_dir.runs, label, SPEC).claim().start(num_steps=80)
    by_rank = [
        [loss + rank / 2 + off[rank] * (step >= since[rank]) for step, loss in enumerate(LOSSES)]
        for rank in (0, 1)
    ]
    for number in range(8):
        first = 10 * number
        for rank in (0, 1):
            is_wrong = rank == 1 and first + 9 >= apart_from
            run.log.append(
                "rank_block",
                round=number,
                first_step=first,
                rank=rank,
                seconds=1.0,
                losses=by_rank[rank][first : first + 10],
                weights_sha256="other" if is_wrong else f"{label} {number}",
                weights_size=2.0 if is_wrong else 1.0,
            )
        run.block([0.1] * 10, [sum(pair) / 2 for pair in zip(*by_rank, strict=True)][first:][:10])
    run.end()


def judged(data_dir: DataDir, *backend: Any) -> tuple[str, str]:
    record(data_dir, "baseline", (0.0, 0.0))
    record(data_dir, "control", (1e-5, 2e-5))
    record(data_dir, "inductor", *backend)
    parity = compared(data_dir).results[-1].parity
    return parity_text(parity), str(parity_words(parity))


def test_a_rank_whose_losses_leave_the_band_alone_is_named(data_dir: DataDir) -> None:
    verdict, why = judged(data_dir, (1e-5, 0.3), (0, 13))
    assert verdict == "broken at step 13 on rank 1"
    assert why.startswith("the loss of rank 1 leaves the band at step 13 and is up to ")


def test_a_fault_that_the_mean_of_the_ranks_hides_is_found(data_dir: DataDir) -> None:
    """The mean stays within its band: the two ranks are off by as much in opposite directions."""
    assert judged(data_dir, (-0.3, 0.3), (20, 20))[0] == "broken at step 20"


def test_ranks_that_are_off_together_are_not_told_apart(data_dir: DataDir) -> None:
    """As after a wrong gradient that was averaged: rank 1 is only somewhat farther off."""
    verdict, why = judged(data_dir, (0.1, 0.3), (13, 13))
    assert verdict == "broken at step 13" and why.startswith("the loss leaves the band at step 13")


def test_each_rank_may_differ_as_much_as_the_control_does_on_any_rank(data_dir: DataDir) -> None:
    """Rank 0's own control differs by 1e-5: alone it would allow 10 times that."""
    assert judged(data_dir, (1.5e-4, 0.0))[0] == "matches"


def test_weights_that_come_apart_are_a_warning_with_rank_and_steps(data_dir: DataDir) -> None:
    judged(data_dir, (0.0, 0.0), (0, 0), 34)
    (warning,) = [text for text in warnings_of(compared(data_dir)) if "weights" in text]
    assert warning.startswith(
        "inductor: rank 1 left the weights of the others between step 30 and step 39, and the "
        "baseline's stay equal, bit for bit."
    )


def blocks(*hashes: str, sizes: tuple[float, ...] = (), column: str = "weights_sha256") -> Any:
    """The ranks of a block of one step."""
    return pd.DataFrame(
        {
            "first_step": 4,
            "rank": range(len(hashes)),
            "losses": [[1.0]] * len(hashes),
            "weights_sha256": None,
            "shards_sha256": None,
            "weights_size": sizes or 1.0,
        }
    ).assign(**{column: hashes})


@pytest.mark.parametrize(
    ("baseline", "run", "expected"),
    [
        (blocks("a", "a"), blocks("b", "b"), None),
        (blocks("a", "b"), blocks("c", "d"), None),
        (blocks("a", "a"), blocks("b", "c"), RanksApart((0, 1), False, 4, 4)),
        (
            blocks("a", "a"),
            blocks("b", "c", sizes=(1.0, 1.1)),
            RanksApart((1,), True, 4, 4),
        ),
        (blocks("a", "a", "a"), blocks("b", "c", "c"), RanksApart((0,), True, 4, 4)),
        (blocks("nan", "nan", sizes=(math.nan, math.nan)), blocks("b", "c"), None),
        (
            blocks("a", "b", "a", "b", column="shards_sha256"),
            blocks("c", "d", "c", "e", column="shards_sha256"),
            RanksApart((1, 3), False, 4, 4),
        ),
    ],
    ids=[
        "equal in both",
        "parts that differ in the baseline",
        "two without sizes",
        "two, one of another size",
        "outvoted",
        "diverged in the baseline",
        "copies of a part, as in HSDP",
    ],
)
def test_ranks_are_apart_if_the_baseline_has_them_equal(
    baseline: pd.DataFrame, run: pd.DataFrame, expected: RanksApart | None
) -> None:
    assert ranks_apart(baseline, run) == expected


def test_the_hashes_of_runs_are_never_compared_with_each_other(data_dir: DataDir) -> None:
    """A control has other weights than the baseline, and its ranks the same as each other."""
    judged(data_dir, (0.0, 0.0))
    assert not [text for text in warnings_of(compared(data_dir)) if "weights" in text]
