"""The timeline of compiling: stages by frame and time, and the duration of each phase, also for an
earlier run of the same backend."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.remaining import Costs

STAGES = {
    "dynamo": "Dynamo",
    "guards": "Guards",
    "aot": "AOTAutograd",
    "lowering": "Inductor lowering",
    "code": "Code generation",
    "kernels": "Triton and C++",
    "autotuning": "Autotuning",
}
"""Name of a stage in journals to its displayed name. Most stages are nested in the earlier ones:
the own time of a stage excludes all later stages."""
MAX_SPANS = 3_000
"""Largest number of bars, because readers cannot distinguish more; the longest are shown."""
COLUMNS = (
    "frame",
    "place",
    "step",
    "phase",
    "stage",
    "name",
    "begin",
    "seconds",
    "thread",
    "gap_seconds",
)


def timeline(store: Store, experiment_id: str, run_id: str) -> pd.DataFrame:
    """A row for each stage of each compilation of a run, in the order of their beginning.

    frame: `forward [0/0]`, the function and the compilation's id; place: `file:line` of the
    function; stage: its displayed name; begin: seconds since the run's first compilation began,
    without the time between compilations, in which the run trained or waited for its turn;
    gap_seconds: seconds omitted in this way before this row. Empty if the journal has no spans.
    """
    spans = queries.compile_spans(store, experiment_id)
    spans = spans[(spans["run_id"] == run_id) & spans["stage"].isin(list(STAGES))]
    if spans.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    spans = spans.nlargest(MAX_SPANS, "seconds").sort_values("start", kind="stable")
    metrics = queries.compile_metrics(store, experiment_id)
    metrics = metrics[(metrics["run_id"] == run_id) & metrics["function"].notna()]
    frames = metrics.drop_duplicates("compile_id").set_index("compile_id")
    names = frames["function"].to_dict()
    places = {
        key: f"{frame.file}:{frame.line:.0f}" if pd.notna(frame.line) else str(frame.file)
        for key, frame in zip(frames.index, frames.itertuples(), strict=True)
    }
    # The time without compiling before each start, in total.
    ends = (spans["start"] + spans["seconds"]).cummax().shift()
    gap_seconds = (spans["start"] - ends).clip(lower=0.0).fillna(0.0).cumsum()
    return pd.DataFrame(
        {
            "frame": [
                f"{names.get(key) or 'compiled later'} [{key}]" for key in spans["compile_id"]
            ],
            "place": [places.get(key) for key in spans["compile_id"]],
            "step": spans["step"],
            "phase": spans["phase"],
            "stage": spans["stage"].map(STAGES),
            "name": spans["name"],
            "begin": spans["start"] - spans["start"].iloc[0] - gap_seconds,
            "seconds": spans["seconds"],
            "thread": spans["thread"].fillna(0).astype(int),
            "gap_seconds": gap_seconds,
        }
    ).reset_index(drop=True)


PHASES = {
    "Dynamo": "total_seconds",
    "AOTAutograd": "aot_seconds",
    "Inductor lowering": "inductor_seconds",
    "Code generation": "code_seconds",
    "Triton and C++": "kernel_seconds",
}
"""Phases, each nested in the one before, and the column with its time including inner phases."""


def phases_by_run(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, phase, seconds: each phase's own time, over all frames that a run
    compiled in training. Their sum is the time that torch reports for these frames.
    """
    frames = queries.compile_metrics(store, experiment_id)
    frames = frames[(frames["phase"] == "training") & (frames["attempt"] == 1)]
    keys = ["run_id", "label", "role"]
    exclusive_seconds = pd.concat([frames[keys], exclusive_phase_seconds(frames)], axis="columns")
    summed = exclusive_seconds.groupby(keys, sort=False, as_index=False).sum()
    return summed.melt(keys, var_name="phase", value_name="seconds")


def exclusive_phase_seconds(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per frame, a column per phase: its time minus that of the inner phases.

    Times that torch does not report are 0. A backward pass that is compiled later is a separate
    frame, whose total is the time of AOTAutograd.
    """
    inclusive_seconds = frames[list(PHASES.values())].astype(float).copy()
    is_backward = inclusive_seconds["aot_seconds"].isna() & frames["function"].isna()
    inclusive_seconds.loc[is_backward, "aot_seconds"] = inclusive_seconds["total_seconds"]
    # A phase that torch omits, such as Inductor's after a cache hit, may still have inner phases.
    inclusive_seconds = (
        inclusive_seconds.fillna(0.0).iloc[:, ::-1].cummax(axis="columns").iloc[:, ::-1]
    )
    exclusive_seconds = inclusive_seconds - inclusive_seconds.shift(
        -1, axis="columns", fill_value=0.0
    )
    return exclusive_seconds.set_axis(list(PHASES), axis="columns")


@dataclass(frozen=True, kw_only=True)
class PhaseTimes:
    """Seconds of one run by phase of `PHASES`; empty while nothing is reported."""

    label: str
    since: pd.Timestamp | None
    """Beginning of the present compilation, minus the time of earlier graphs without a report; None
    while nothing compiles."""
    seconds_by_phase: dict[str, float]
    earlier_seconds_by_phase: dict[str, float]

    def phase_after(self, seconds: float) -> str | None:
        """The phase of the earlier run after this time, if phases follow one another; None after
        the last phase, and without an earlier run."""
        for phase, took in self.earlier_seconds_by_phase.items():
            seconds -= took
            if seconds < 0:
                return phase
        return None


def phase_times(
    store: Store, experiment_id: str, runs: pd.DataFrame, earlier: Sequence[Costs]
) -> list[PhaseTimes]:
    """The times of each run that compiles or has compiled, in the order of the experiment.

    `runs`: rows of `storage.queries.list_runs`; `earlier`: the result of `earlier_costs`; the first
    experiment in it with such a run counts.
    """
    seconds_by_label = _by_label(store, experiment_id)
    times = []
    for run in runs.itertuples():
        label, since = str(run.label), run.compiling_since
        # Phases divide the compile latency, which excludes compiling for an evaluation.
        since = None if pd.isna(since) or run.phase in ("evaluating", "checking") else since
        if since is not None and label not in seconds_by_label:
            since -= pd.Timedelta(seconds=run.compiled_seconds)
        if label in seconds_by_label or since is not None:
            earlier_seconds_by_phase = _earlier_seconds_by_phase(store, label, earlier)
            times.append(
                PhaseTimes(
                    label=label,
                    since=since,
                    seconds_by_phase=seconds_by_label.get(label, {}),
                    earlier_seconds_by_phase=earlier_seconds_by_phase,
                )
            )
    return times


def _earlier_seconds_by_phase(
    store: Store, label: str, earlier: Sequence[Costs]
) -> dict[str, float]:
    for costs in earlier:
        run = costs.run_costs(label)
        if run is not None and run.compile_seconds and costs.experiment_id:
            return _by_label(store, costs.experiment_id).get(label, {})
    return {}


def _by_label(store: Store, experiment_id: str) -> dict[str, dict[str, float]]:
    frame = phases_by_run(store, experiment_id)
    order = list(PHASES)
    return {
        str(label): {
            phase: float(of_phase["seconds"].sum())
            for phase in order
            if len(of_phase := of_run[of_run["phase"] == phase])
        }
        for label, of_run in frame.groupby("label", sort=False)
    }
