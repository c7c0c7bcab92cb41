"""Compiling as it went: what worked when on which frames, and the time of each phase, also
compared with an earlier run of the same backend."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from breakeven.storage import queries
from breakeven.storage.estimates import Costs
from breakeven.storage.index.store import Store

STAGES = {
    "dynamo": "Dynamo",
    "guards": "Guards",
    "aot": "AOTAutograd",
    "lowering": "Inductor lowering",
    "code": "Code generation",
    "kernels": "Triton and C++",
    "autotuning": "Autotuning",
}
"""What a journal calls a stage, and what people do. Mostly each lies in those before it, of which
it takes its time: what a stage did alone is what none of the later ones did."""
MAX_SPANS = 3_000
"""Readers cannot distinguish more bars than that; the longest are shown."""
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
    "waited",
)


def timeline(store: Store, experiment_id: str, run_id: str) -> pd.DataFrame:
    """A row for each stage of each compilation of a run, frame by frame as they began.

    frame: `forward [0/0]`, the function and the compilation's id; place: `file:line` of the
    function; stage: as people call it; begin: seconds since the run's first compilation began,
    without the time between compilations, in which the run trained and waited for its turn; waited:
    seconds of such time that were left out before this row. Empty for journals that tell no spans.
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
    places = {key: f"{frame.file}:{frame.line:.0f}" if pd.notna(frame.line) else str(frame.file)
              for key, frame in zip(frames.index, frames.itertuples(), strict=True)}  # fmt: skip
    left_out = _left_out(spans["start"], spans["seconds"])
    return pd.DataFrame({
        "frame": [f"{names.get(key) or 'compiled later'} [{key}]" for key in spans["compile_id"]],
        "place": [places.get(key) for key in spans["compile_id"]],
        "step": spans["step"],
        "phase": spans["phase"],
        "stage": spans["stage"].map(STAGES),
        "name": spans["name"],
        "begin": spans["start"] - spans["start"].iloc[0] - left_out,
        "seconds": spans["seconds"],
        "thread": spans["thread"].fillna(0).astype(int),
        "waited": left_out,
    }).reset_index(drop=True)  # fmt: skip


def _left_out(starts: Iterable[float], seconds: Iterable[float]) -> list[float]:
    """How much of the time before each start nothing compiled, in all; starts are in order."""
    end, idle, found = None, 0.0, []
    for start, length in zip(starts, seconds, strict=True):
        if end is not None and start > end:
            idle += start - end
        end = start + length if end is None else max(end, start + length)
        found.append(idle)
    return found


PHASES = {
    "Dynamo": "total_seconds",
    "AOTAutograd": "aot_seconds",
    "Inductor lowering": "inductor_seconds",
    "Code generation": "code_seconds",
    "Triton and C++": "kernel_seconds",
}
"""Phases, each lying in the one before, and the column that has it with all that lies in it."""


def phases_by_run(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, phase, seconds: what each phase took alone, over all frames that a run
    compiled in training. Together they are the time that torch reports of the frames.
    """
    frames = queries.compile_metrics(store, experiment_id)
    frames = frames[(frames["phase"] == "training") & (frames["attempt"] == 1)]
    keys = ["run_id", "label", "role"]
    alone = pd.concat([frames[keys], taken_apart(frames)], axis="columns")
    summed = alone.groupby(keys, sort=False, as_index=False).sum()
    return summed.melt(keys, var_name="phase", value_name="seconds")


def taken_apart(frames: pd.DataFrame) -> pd.DataFrame:
    """One row per frame, a column per phase: its time less that of the phases in it.

    What torch does not report took no time. A backward that is compiled later is a frame of its
    own, whose total is AOTAutograd's.
    """
    within = frames[list(PHASES.values())].astype(float).copy()
    is_backward = within["aot_seconds"].isna() & frames["function"].isna()
    within.loc[is_backward, "aot_seconds"] = within["total_seconds"]
    # A phase that torch left out, as Inductor's where its cache had the graph, may hold others.
    within = within.fillna(0.0).iloc[:, ::-1].cummax(axis="columns").iloc[:, ::-1]
    alone = within - within.shift(-1, axis="columns", fill_value=0.0)
    return alone.set_axis(list(PHASES), axis="columns")


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
