"""The time of each phase of compiling, compared with an earlier run of the same backend."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from breakeven.storage.compiling.timeline import PHASES, phases_by_run
from breakeven.storage.estimates import Costs
from breakeven.storage.index.store import Store


@dataclass(frozen=True, kw_only=True)
class PhaseTimes:
    """Of one run. Seconds by phase, as `PHASES` names them; empty while nothing is reported."""

    label: str
    since: pd.Timestamp | None
    """When the compilation began that goes on, or would have, had no time passed since the graphs
    before it of which nothing is reported yet; None if none goes on."""
    now: dict[str, float]
    last: dict[str, float]

    def phase_after(self, seconds: float) -> str | None:
        """In which phase the earlier run was after so long, if each followed the one before; None
        after the last one, and if nothing is known of an earlier run."""
        for phase, took in self.last.items():
            seconds -= took
            if seconds < 0:
                return phase
        return None


def phase_times(
    store: Store, experiment_id: str, runs: pd.DataFrame, earlier: Sequence[Costs]
) -> list[PhaseTimes]:
    """Of each run that compiles or has compiled, in the order of the experiment.

    `runs`: rows of `storage.queries.list_runs`; `earlier`: what `earlier_costs` found, of which the
    first that has such a run counts.
    """
    now = _by_label(store, experiment_id)
    found = []
    for run in runs.itertuples():
        label, since = str(run.label), run.compiling_since
        # Compiling for an evaluation does not count to the latency that phases divide.
        since = None if pd.isna(since) or run.phase in ("evaluating", "checking") else since
        if since is not None and label not in now:
            since -= pd.Timedelta(seconds=run.compiled_seconds)
        if label in now or since is not None:
            last = _last(store, label, earlier)
            found.append(PhaseTimes(label=label, since=since, now=now.get(label, {}), last=last))
    return found


def _last(store: Store, label: str, earlier: Sequence[Costs]) -> dict[str, float]:
    for one in earlier:
        run = one.of(label)
        if run is not None and run.compile_seconds and one.experiment_id:
            return _by_label(store, one.experiment_id).get(label, {})
    return {}


def _by_label(store: Store, experiment_id: str) -> dict[str, dict[str, float]]:
    frame = phases_by_run(store, experiment_id)
    order = list(PHASES)
    return {
        str(label): {phase: float(of["seconds"].sum()) for phase in order
                     if len(of := mine[mine["phase"] == phase])}
        for label, mine in frame.groupby("label", sort=False)
    }  # fmt: skip
