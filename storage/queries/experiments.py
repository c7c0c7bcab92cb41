"""Which experiments and runs there are, and how each stands right now."""

import pandas as pd

from runner.folders.states import ExperimentState, RunState
from storage.index.store import Store
from storage.queries.kept import kept
from storage.queries.rows import MINE, timestamp


def list_experiments(store: Store) -> pd.DataFrame:
    """All experiments, newest first.

    `state` is an `ExperimentState`, which sums up the runs; `name` and `archived` are as people
    labelled it.
    """
    frame = store.query("""
        WITH known AS (
            SELECT run_id, arg_max(device_name, seq) AS device_name,
                arg_max(versions->>'torch', seq) AS torch_version
            FROM environments GROUP BY run_id),
        labelled AS (
            SELECT experiment_id, content->>'name' AS name,
                (content->>'archived')::BOOLEAN AS archived
            FROM runs JOIN labels USING (run_id) WHERE position = 0),
        summed AS (
            SELECT experiment_id, max(origin) AS origin, min(claimed) AS submitted,
                array_agg(state) AS state, count(*) AS num_runs, 0 AS num_ended,
                min(spec)::JSON->'experiment' AS spec,
                max(device_name) AS device_name, max(torch_version) AS torch_version
            FROM runs JOIN progress USING (run_id) LEFT JOIN known USING (run_id)
            GROUP BY experiment_id)
        SELECT experiment_id, coalesce(labelled.name, spec->>'name') AS name,
            coalesce(archived, false) AS archived, origin, submitted,
            spec->>'$.devices[0]' AS device, device_name, spec->>'schedule' AS schedule,
            spec->>'fallback_of' AS fallback_of, state, num_runs, num_ended,
            spec->>'$.model.source' AS model, spec->>'$.data.source' AS data, torch_version
        FROM summed LEFT JOIN labelled USING (experiment_id)""")
    states = [[RunState(state) for state in group] for group in frame["state"]]
    frame["state"] = [ExperimentState.of(group).value for group in states]
    frame["num_ended"] = [sum(state.is_final for state in group) for group in states]
    # Ids begin with the time of submission; of one made by other means the first claim must do.
    stamps = frame["experiment_id"].str.slice(0, 22)
    submitted = pd.to_datetime(stamps, format="%Y%m%d-%H%M%S-%f", errors="coerce", utc=True)
    frame["submitted"] = submitted.fillna(timestamp(frame["submitted"]))
    return frame.sort_values(["submitted", "experiment_id"], ascending=False, ignore_index=True)


@kept
def list_runs(store: Store, experiment_id: str) -> pd.DataFrame:
    """The runs of an experiment in the order of its variants, with how each stands right now.

    `compiling_since` and `compile_trigger` tell of a compilation that a running run is in.
    `last_loss` is None before the first step and of forward passes, which have none; NaN is a loss
    that is not a number. `reason` is, of
    a run that failed with an error, the first line of its message.
    """
    frame = store.query(
        f"""
        WITH phase AS (
            SELECT run_id, arg_max(phase, seq) AS phase, arg_max(time, seq) AS phase_started,
                min(time) AS started
            FROM phases WHERE {MINE} GROUP BY run_id),
        compiling AS (
            SELECT run_id, arg_min(time, seq) AS since, arg_min(trigger, seq) AS trigger
            FROM compile_starts s
            WHERE s.{MINE} AND NOT EXISTS (
                FROM compile_ends e
                WHERE e.{MINE} AND e.run_id = s.run_id AND e.seq > s.seq
                    AND e.compile_id IS NOT DISTINCT FROM s.compile_id
                    AND e.trigger IS NOT DISTINCT FROM s.trigger)
            GROUP BY run_id),
        done AS (
            SELECT run_id, count(*) AS steps_done, arg_max(loss, step) AS last_loss,
                count(loss) AS num_losses,
                median(seconds) FILTER (steady) AS steady_step_seconds
            FROM judged_steps($1) GROUP BY run_id),
        said AS (
            SELECT run_id, split_part(arg_max(message, seq), chr(10), 1) AS message
            FROM errors WHERE {MINE} GROUP BY run_id)
        SELECT run_id, label, role, backend, state, phase, phase_started,
            CASE WHEN state = '{RunState.FAILED}' THEN coalesce(message, reason)
                ELSE reason END AS reason,
            CASE WHEN state = '{RunState.RUNNING}' THEN since END AS compiling_since,
            CASE WHEN state = '{RunState.RUNNING}' THEN trigger END AS compile_trigger,
            coalesce(steps_done, 0) AS steps_done, num_steps, last_loss, num_losses,
            steady_step_seconds,
            coalesce(claimed, started) AS started, ended, folder
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN compiling USING (run_id) LEFT JOIN done USING (run_id)
            LEFT JOIN said USING (run_id)
        WHERE {MINE} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
    has_loss = frame.pop("num_losses") > 0
    frame["last_loss"] = frame["last_loss"].astype(object).where(has_loss, None)
    for column in ("phase_started", "compiling_since", "started", "ended"):
        frame[column] = timestamp(frame[column])
    return frame


def unreadable(store: Store) -> pd.DataFrame:
    """Folders that should be run folders and cannot be read, and what is wrong with them."""
    return store.query("SELECT folder, message FROM unreadable ORDER BY folder")
