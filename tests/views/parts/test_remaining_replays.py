"""The remaining time that pages show, at moments of recorded experiments, against the time that
really remained."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from breakeven.runner.processes import ProcessIdentity
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.records import Claim
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage import queries
from breakeven.storage.commands import EXAMPLES
from breakeven.storage.index.store import Store
from breakeven.storage.remaining import Costs, costs_of, remaining_seconds
from breakeven.views.parts.progress import compiling_seconds

pytestmark = pytest.mark.heavy  # replays of recorded experiments: seconds

RECORDED = sorted(EXAMPLES.glob("*/*.baseline"))
(SINCE_PROFILES_HAVE_A_BUDGET,) = EXAMPLES.glob("bert-base-reviews-h200/*.baseline")
"""Earlier experiments were profiled three times as long as any is now, and no record announced
it."""
MOMENTS = (0.25, 0.5, 0.875)
"""Shares of an experiment's time, from the first claim to the last end."""
MOST = 1.5


def times(run: Path) -> tuple[float, float]:
    return tuple(
        json.loads((run / name).read_text())["time"] for name in ("claim.json", "exit.json")
    )


def leave_what_was_there(run: Path, at: float, to: Path) -> None:
    """The run's folder as it was at that moment."""
    to.mkdir()
    shutil.copy(run / "spec.json", to)
    begun, ended = times(run)
    if begun <= at:
        lines = (run / "events.jsonl").read_text().splitlines(keepends=True)
        there = [line for line in lines if json.loads(line)["time"] <= at]
        (to / "events.jsonl").write_text("".join(there))
        claim = Claim.by(ProcessIdentity.from_pid(os.getpid()))
        RunDir(to).write_claim(replace(claim, time=begun))
    if ended <= at:
        shutil.copy(run / "exit.json", to)


def shown_over_true(baseline: Path, folder: Path, earlier: list[Costs]) -> Mapping[float, float]:
    """The ratio of shown to real remaining seconds, by moment; moments without a shown time are
    left out."""
    experiment_id = baseline.name.removesuffix(".baseline")
    runs = sorted(baseline.parent.iterdir())
    begun, ended = min(times(run)[0] for run in runs), max(times(run)[1] for run in runs)
    ratios = {}
    for moment in MOMENTS:
        at = begun + moment * (ended - begun)
        data_dir = DataDir(folder / str(moment))
        data_dir.runs.mkdir(parents=True)
        for run in runs:
            leave_what_was_there(run, at, data_dir.runs / run.name)
        with Store.in_memory(data_dir) as store:
            compiling = compiling_seconds(queries.list_runs(store, experiment_id), at)
            known = costs_of(store, experiment_id), earlier, at, compiling
            if remaining_seconds(*known) is not None:
                ratios[moment] = (remaining_seconds(*known, guess=True) or 0.0) / (ended - at)
    return ratios


@pytest.mark.parametrize(
    "baseline",
    [
        pytest.param(run, marks=[] if run == SINCE_PROFILES_HAVE_A_BUDGET else [pytest.mark.slow])
        for run in RECORDED
    ],
    ids=lambda run: run.parent.name,
)
def test_the_second_time_all_that_is_shown_is_right_from_the_first_quarter_on(
    baseline: Path, tmp_path: Path, examples: Store
) -> None:
    earlier = costs_of(examples, baseline.name.removesuffix(".baseline"))
    ratios = shown_over_true(baseline, tmp_path, [earlier])
    assert set(ratios) == set(MOMENTS)
    assert {at: ratio for at, ratio in ratios.items() if not 1 / MOST <= ratio <= MOST} == {}


def test_the_first_time_what_is_shown_is_right_as_well(tmp_path: Path) -> None:
    ratios = shown_over_true(SINCE_PROFILES_HAVE_A_BUDGET, tmp_path, [])
    assert (
        ratios
        and {at: ratio for at, ratio in ratios.items() if not 1 / MOST <= ratio <= MOST} == {}
    )
