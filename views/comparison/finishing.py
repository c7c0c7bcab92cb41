"""What still runs once the trainings of an experiment have ended: what it is, why, and what of the
verdict may change."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from breakeven.runner.errors import RunnerError
from breakeven.runner.experiments.continuing import plan_to_continue
from breakeven.runner.more_controls import judged_runs, why_open
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.states import ACTIVE_RUNS, RunState
from breakeven.runner.specs.scenario_fields import PlanSpec
from breakeven.storage import queries
from breakeven.storage.index.store import Store
from breakeven.storage.result_caches import always, memo
from breakeven.views.shared import words
from breakeven.views.shared.definition_links import linked
from breakeven.views.shared.inert import Markdown, inert

AFTER_STEPS: Mapping[str, tuple[str, str]] = {
    "evaluating": ("evaluated", "Its scores and parity may change."),
    "profiling": ("profiled in a few extra steps", "Only *Why* changes."),
    "checking": ("checked for its random numbers", "Only parity may change."),
    "done": ("ended", "Nothing changes any more."),
}
"""What a run's process does after the last step, and what this changes, by its phase."""
TOO_LITTLE = "the trainings so far decide too little about a backend"


def what_still_runs(store: Store, experiment_id: str) -> Markdown:
    """What still runs after the last step of every planned run, why, and what may change; empty
    while a run has steps to train, and for experiments that compare no trainings."""
    spec = queries.experiment_spec(store, experiment_id)
    runs = queries.latest_runs(store, experiment_id)
    active = runs[runs["state"].isin(ACTIVE_RUNS)]
    if active.empty or not (spec.kind.has_speedups and spec.kind.has_planned_steps):
        return ""
    with suppress(RunnerError):
        if plan := plan_to_continue(RunDir(Path(active["folder"].iloc[0]))):
            return _continued(plan)
    further = [arm.label for arm in spec.further_controls]
    planned = active[~active["label"].isin(further)]
    if planned.empty:
        label = str(active["label"].iloc[0])
        why = why_control(store, experiment_id, label) or TOO_LITTLE
        return f"**{inert(label)}** still trains, alone: {inert(why)}. Only parity may change."
    if not all(_has_done_its_steps(run) for run in planned.itertuples()):
        return ""
    for run in planned.itertuples():
        if run.phase in AFTER_STEPS:
            does, changes = AFTER_STEPS[run.phase]
            return f"All steps are done; **{inert(run.label)}** is {does}. {changes}"
    return "All steps are done; evaluation, profiles and checks may change parity and *Why*."


def _has_done_its_steps(run: object) -> bool:
    """Whether an active run has trained all its steps. A script may not say how many it has."""
    phase, done, planned = (getattr(run, name) for name in ("phase", "steps_done", "num_steps"))
    return phase in ("profiling", "checking", "done") or 0 < planned <= done


def _continued(plan: PlanSpec) -> Markdown:
    seconds = linked("elapsed_seconds", words.duration(plan.max_seconds))
    steps = linked("planned_seconds", words.plural(plan.steps or 0, "step"))
    return (
        f"Is timed further, in a new process of each run, until it is decided what takes the least "
        f"time for {steps}, or until steps and compiling of all runs together have taken "
        f"{seconds}. Only speed and break-even may change."
    )


@memo(always)
def why_control(store: Store, experiment_id: str, label: str) -> str | None:
    """Why the supervisor added a control, from the losses of the runs before it; None if they do
    not say. Computed once: these runs have finished."""
    spec = queries.experiment_spec(store, experiment_id)
    arms = {arm.label: arm for arm in spec.possible_arms}
    runs = queries.run_states(store, experiment_id)
    earlier = [
        (RunDir(Path(run.folder)), arms[str(run.label)])
        for run in runs.itertuples()
        if run.state == RunState.FINISHED and run.label != label
    ]
    losses = queries.losses(store, experiment_id, max_points=None)
    by_run = {
        str(run_id): dict(zip(run["step"].astype(int), run["loss"].astype(float), strict=True))
        for run_id, run in losses.groupby("run_id")
    }
    judged = [
        (role, by_run[run.path.name])
        for role, run in judged_runs(spec, arms[label].environment, earlier)
        if run.path.name in by_run
    ]
    # The baseline comes first, as the runs are in the order of the arms.
    equals = [steps for role, steps in judged if role != "backend"]
    backends = [steps for role, steps in judged if role == "backend"]
    return why_open(equals, backends, spec.training.precision) if len(equals) > 1 else None
