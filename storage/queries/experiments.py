"""Lists experiments, suite runs and runs with their present states.

`latest_runs` reads the state between two ticks from new lines of the journals. This takes a small
part of the time of a tick, which writes to the database, so that all results of the experiment are
computed again, on a machine that is being timed.
"""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from breakeven.runner.errors import short_cause
from breakeven.runner.protocol.records import Labels
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.protocol.run_progress import RunProgress
from breakeven.runner.protocol.states import FINAL_EXPERIMENTS, ExperimentState, RunState
from breakeven.runner.specs.arm_fields import ENVIRONMENT_MARK
from breakeven.runner.specs.experiment import ExperimentSpec, RunSpec
from breakeven.storage.errors import NotInStore
from breakeven.storage.index.store import Store
from breakeven.storage.queries.rows import IN_EXPERIMENT, timestamp
from breakeven.storage.result_caches import FINAL_STATES, generation, memo, revision

STAMP_CHARACTERS = 22
MICROSECONDS = "datetime64[us, UTC]"
CLOCKS_DIFFER = pd.Timedelta(days=1)
"""Largest accepted lead of another machine's clock."""
FACTS = (
    "name",
    "origin",
    "scenario",
    "task",
    "model",
    "data",
    "precision",
    "batch",
    "backends",
    "schedule",
    "suite_run",
    "fallback_of",
    "confirms",
    "investigates",
)
"""Columns of `runs` that are equal for all runs of an experiment."""


@memo(generation)
def list_experiments(store: Store) -> pd.DataFrame:
    """All experiments, newest first.

    `state` is an `ExperimentState`, which summarises the runs; `name`, `archived` and `labels` are
    from users' labels. `device` is the name in the specification or the run, `device_name` that of
    the driver. `submitted` is a UTC timestamp, `claimed` and `ended` are seconds since the epoch.
    Each change of the experiment changes `revision` or `num_runs`.
    """
    frame = store.query(
        f"""
        WITH machine AS (
            SELECT run_id, arg_max(device_name, seq) AS device_name, arg_max(host, seq) AS host,
                arg_max(versions->>'torch', seq) AS torch_version,
                arg_max(versions->>'transformers', seq) AS transformers_version,
                arg_max(devices->>'$[0]', seq) AS placed
            FROM environments GROUP BY run_id),
        answers AS (  -- of investigations, as in `standing` of `storage.result_caches`
            SELECT split_part(investigates, '.', 1) AS experiment_id, max(revision) AS answered
            FROM runs JOIN progress USING (run_id)
            WHERE investigates IS NOT NULL AND list_contains($1, state) GROUP BY ALL)
        SELECT experiment_id, {", ".join(f"any_value({name}) AS {name}" for name in FACTS)},
            coalesce(max(placed), any_value(device)) AS device, max(device_name) AS device_name,
            max(host) AS host, max(torch_version) AS torch_version,
            max(transformers_version) AS transformers_version,
            min(claimed) AS claimed, max(ended) AS ended, list(DISTINCT state) AS state,
            any_value(state) FILTER (scenario = 'tune' AND role = 'baseline') AS searched,
            count(*) AS num_runs,
            greatest(max(progress.revision), any_value(answered)) AS revision,
            count(*) FILTER (list_contains($1, state)) AS num_ended,
            list(folder ORDER BY position) AS folders,
            coalesce(list_sort(list(DISTINCT environment) FILTER (environment IS NOT NULL)), [])
                AS environments,
            any_value(content) FILTER (position = 0) AS labels
        FROM (
            -- Reading the JSON of every run would take longer than all else.
            SELECT *, CASE WHEN contains(label, $2) THEN spec->>'$.arm.environment' END
                AS environment
            FROM runs
        ) JOIN progress USING (run_id) LEFT JOIN labels USING (run_id)
            LEFT JOIN machine USING (run_id) LEFT JOIN answers USING (experiment_id)
        GROUP BY experiment_id""",
        [FINAL_STATES, ENVIRONMENT_MARK],
    )
    labels = [
        Labels.from_json(content) if isinstance(content, str) else Labels()
        for content in frame["labels"]
    ]
    frame["labels"] = pd.Series(labels, index=frame.index, dtype=object)
    frame["archived"] = [label.archived for label in labels]
    named = zip(labels, frame["name"], strict=True)
    frame["name"] = pd.Series([label.name or usual for label, usual in named], frame.index, "str")
    states = zip(frame["state"], frame.pop("searched"), strict=True)
    frame["state"] = [
        ExperimentState.from_runs(
            list(map(RunState, runs)), None if pd.isna(search_state) else RunState(search_state)
        ).value
        for runs, search_state in states
    ]
    frame["submitted"] = _submitted(frame["experiment_id"], frame["claimed"])
    return frame.sort_values(["submitted", "experiment_id"], ascending=False, ignore_index=True)


@memo(revision)
def faults_not_repeated(store: Store, experiment_id: str) -> dict[str, int]:
    """Runs of an experiment whose newest finished investigation made their steps again without the
    fault, by id, and the number of its trials."""
    newest = """  -- ids of experiments begin with the time
        SELECT arg_max(run_id, experiment_id)
        FROM runs JOIN progress USING (run_id)
        WHERE starts_with(investigates, $1) AND state = 'finished' GROUP BY investigates"""
    run_ids = [run_id for (run_id,) in store.rows(newest, [f"{experiment_id}."])]
    if not run_ids:
        return {}
    query = """
        WITH ended AS (
            SELECT run_id, arg_max(cause, seq) AS cause
            FROM investigation_findings WHERE run_id IN (SELECT unnest($1)) GROUP BY run_id)
        SELECT investigates, count(*)
        FROM ended JOIN investigation_trials USING (run_id) JOIN runs USING (run_id)
        WHERE cause = 'not reproduced' GROUP BY investigates
        HAVING bool_or(stage = 'reproduction' AND what <> 'no compiler' AND outcome = 'passes')"""
    return dict(store.rows(query, [run_ids]))


def _submitted(ids: pd.Series, claimed: pd.Series) -> pd.Series:
    """When experiments were submitted, UTC: the time at the beginning of their ids, or else the
    first claim, in seconds since the epoch.

    NaT if both are in the future or before the epoch: such a folder from elsewhere would always be
    the newest in lists and trends.
    """
    stamps = ids.str.slice(0, STAMP_CHARACTERS)
    of_name = pd.to_datetime(stamps, format="%Y%m%d-%H%M%S-%f", errors="coerce", utc=True)
    known = [_plausible(moments.astype(MICROSECONDS)) for moments in (of_name, timestamp(claimed))]
    return known[0].fillna(known[1])


def _plausible(times: pd.Series) -> pd.Series:
    first = pd.Timestamp(0, tz="UTC")
    return times.where((times >= first) & (times <= pd.Timestamp.now("UTC") + CLOCKS_DIFFER))


def list_suite_runs(store: Store) -> pd.DataFrame:
    """All suite runs, the newest first, with their numbers of experiments and of finished ones.

    `device_name` and `torch_version` are those of any experiment of the suite run.
    """
    frame = suite_experiments(store)
    frame["is_over"] = frame["state"].isin(FINAL_EXPERIMENTS)
    runs = frame.groupby("suite_run", as_index=False).agg(
        submitted=("submitted", "min"),
        num_experiments=("experiment_id", "size"),
        num_over=("is_over", "sum"),
        origin=("origin", "max"),
        device_name=("device_name", "first"),
        torch_version=("torch_version", "first"),
    )
    return runs.sort_values(["submitted", "suite_run"], ascending=False, ignore_index=True)


def is_suite_run(store: Store, name: str) -> bool:
    """Whether a suite run has this id; asks for no list of experiments."""
    return bool(store.rows("SELECT 1 FROM runs WHERE suite_run = ? LIMIT 1", [name]))


def id_named(store: Store, name: str | None) -> str:
    """The id of the experiment or suite run with this id, or whose id alone begins or ends so, as
    in `10f4`; without a name the last experiment of this data folder, or else the last example.
    Raises `NotInStore`."""
    rows: list[tuple[str, str | None, bool]] = store.rows(
        "SELECT DISTINCT experiment_id, suite_run, origin <> 'example' AS own FROM runs"
    )
    if name is None:
        own_last = sorted((own, experiment_id) for experiment_id, _, own in rows)
        if not own_last:
            raise NotInStore(f"there is no experiment in {store.data_dir.runs}")
        return own_last[-1][1]
    ids = {known for row in rows for known in row[:2] if known}
    if name in ids:
        return name
    fitting = sorted(known for known in ids if known.startswith(name) or known.endswith(name))
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        rest = f" and {len(fitting) - 3} more" if len(fitting) > 3 else ""
        listed = ", ".join(fitting[:3])
        raise NotInStore(f"{name!r} is the beginning or end of several ids: {listed}{rest}")
    raise NotInStore(
        f"no experiment {name!r} in {store.data_dir.runs} or among the examples; `breakeven list` "
        "has those that are there"
    )


def suite_experiments(store: Store, suite_run: str | None = None) -> pd.DataFrame:
    """The experiments of one suite run or of all suite runs, the oldest first."""
    experiments = list_experiments(store).dropna(subset="suite_run")
    if suite_run is not None:
        experiments = experiments[experiments["suite_run"] == suite_run]
    return experiments.iloc[::-1]


@memo(revision)
def experiment_spec(store: Store, experiment_id: str) -> ExperimentSpec:
    """The specification of an experiment; raises `NotInStore`."""
    specs = store.query("SELECT spec FROM runs WHERE experiment_id = ? LIMIT 1", [experiment_id])
    if specs.empty:
        raise NotInStore(f"no experiment {experiment_id!r} in {store.data_dir.runs}")
    return RunSpec.from_json(specs["spec"].iloc[0]).experiment


PLANNED_AND_ERRORS = f"""
        planned AS (
            SELECT run_id, arg_max(num_steps, seq) AS steps FROM workloads
            WHERE {IN_EXPERIMENT} GROUP BY run_id),
        errors_of AS (
            SELECT run_id, arg_max(coalesce(error, ''), seq) AS error,
                arg_max(message, seq) AS message
            FROM errors WHERE {IN_EXPERIMENT} GROUP BY run_id)"""
REASON = f"""
            reason, CASE WHEN state = '{RunState.FAILED}' THEN error END AS error, message"""
NUM_STEPS = """
            -- A script says by itself how many steps it makes, some only when it has.
            coalesce(nullif(num_steps, 0), planned.steps, 0) AS num_steps"""


TAKEN_IN = ("journal_offset", "last_seq")


@memo(revision)
def list_runs(store: Store, experiment_id: str) -> pd.DataFrame:
    """The runs of an experiment in the order of its arms, with their present states.

    `compiling_since` is the beginning of the present compilation of a running run, and
    `compiled_seconds` the time of the earlier ones: a run compiles one graph after the other.
    `last_loss` is None before the first step and for forward passes, which have no loss; NaN is a
    loss that is not a number. If a run failed with an error, `reason` is its `short_cause`.
    `TAKEN_IN` is the position in the journal up to which rows were ingested.
    """
    frame = store.query(
        f"""
        WITH phase AS (
            SELECT run_id, arg_max(phase, seq) AS phase, arg_max(time, seq) AS phase_started,
                min(time) AS started
            FROM phases WHERE {IN_EXPERIMENT} GROUP BY run_id),
        compiling AS (
            SELECT run_id, arg_min(time, seq) AS since
            FROM compile_starts s
            WHERE s.{IN_EXPERIMENT} AND NOT EXISTS (
                FROM compile_ends e
                WHERE e.{IN_EXPERIMENT} AND e.run_id = s.run_id AND e.seq > s.seq
                    AND e.compile_id IS NOT DISTINCT FROM s.compile_id
                    AND e.trigger IS NOT DISTINCT FROM s.trigger)
            GROUP BY run_id),
        -- Compilations lie within each other, and within the one that goes on.
        covered AS (
            SELECT run_id, time - seconds AS start,
                least(time, coalesce(since, time)) AS "end",
                max(time) OVER (PARTITION BY run_id ORDER BY time - seconds
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
            FROM compile_ends e LEFT JOIN compiling USING (run_id)
            WHERE e.{IN_EXPERIMENT} AND isfinite(seconds)),
        compiled AS (
            SELECT run_id,
                sum(greatest(0, "end" - greatest(start, coalesce(before, start)))) AS seconds
            FROM covered GROUP BY run_id),
        done AS (
            SELECT run_id, count(*) AS steps_done, arg_max(loss, step) AS last_loss,
                count(loss) AS num_losses,
                median(seconds) FILTER (steady) AS steady_step_seconds
            FROM judged_steps($1) GROUP BY run_id),
        {PLANNED_AND_ERRORS}
        SELECT run_id, label, role, backend, state, phase, phase_started, {REASON},
            CASE WHEN state = '{RunState.RUNNING}' THEN since END AS compiling_since,
            coalesce(compiled.seconds, 0) AS compiled_seconds,
            coalesce(steps_done, 0) AS steps_done, {NUM_STEPS}, last_loss, num_losses,
            steady_step_seconds,
            coalesce(claimed, started) AS started, ended, folder, {", ".join(TAKEN_IN)}
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN compiling USING (run_id) LEFT JOIN compiled USING (run_id)
            LEFT JOIN done USING (run_id) LEFT JOIN errors_of USING (run_id)
            LEFT JOIN planned USING (run_id)
        WHERE {IN_EXPERIMENT} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
    has_loss = frame.pop("num_losses") > 0
    frame["last_loss"] = frame["last_loss"].astype(object).where(has_loss, None)
    for column in ("phase_started", "compiling_since", "started", "ended"):
        frame[column] = timestamp(frame[column])
    return _with_causes(frame)


@memo(revision)
def run_states(store: Store, experiment_id: str) -> pd.DataFrame:
    """run_id, label, role, backend, state, reason, num_steps, folder as in `list_runs`, without
    reading all steps. `left_out` is the number of events of the journal that are ignored because
    their `seq` does not ascend; `missing` is the number of those that are missing between the
    others."""
    frame = store.query(
        f"""
        WITH {PLANNED_AND_ERRORS}
        SELECT run_id, label, role, backend, state, left_out, missing, {REASON}, {NUM_STEPS}, folder
        FROM runs JOIN progress USING (run_id)
            LEFT JOIN errors_of USING (run_id) LEFT JOIN planned USING (run_id)
        WHERE {IN_EXPERIMENT} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
    return _with_causes(frame)


def _with_causes(frame: pd.DataFrame) -> pd.DataFrame:
    """Replaces error and message of a run by one line, the reason of its end."""
    for row, error, message in zip(
        frame.index, frame.pop("error"), frame.pop("message"), strict=True
    ):
        if isinstance(error, str) and isinstance(message, str):
            frame.loc[row, "reason"] = short_cause(error, message)
    return frame


def unreadable(store: Store) -> pd.DataFrame:
    """Unreadable run folders with their errors."""
    return store.query("SELECT folder, message FROM unreadable ORDER BY folder")


_following: dict[tuple[int, str], tuple[tuple[int, ...], RunProgress]] = {}
"""Running runs by store and id: the place in the journal from which each is read on, and the
run."""
_reading = threading.Lock()
LIVE: dict[str, Any] = {
    "phase": "str",
    "phase_started": "datetime64[ns, UTC]",
    "compiling_since": "datetime64[ns, UTC]",
    "compiled_seconds": "float64",
    "steps_done": "int64",
    "last_loss": object,
}
"""Columns that new lines of journals may change, with their types."""


def latest_runs(store: Store, experiment_id: str) -> pd.DataFrame:
    """`list_runs` with the present phase, compilation, steps and last loss of running runs."""
    runs = list_runs(store, experiment_id)
    places = list(zip(*(runs.pop(name) for name in TAKEN_IN), strict=True))
    rows = runs.to_dict("records")
    with _reading:
        for row, place in zip(rows, places, strict=True):
            if row["state"] == RunState.RUNNING:
                row |= _present(store, experiment_id, row, place)
    return runs.assign(
        **{
            name: pd.Series([row[name] for row in rows], runs.index, kind)
            for name, kind in LIVE.items()
        }
    )


def _present(
    store: Store, experiment_id: str, row: Mapping[Any, Any], place: tuple[int, ...]
) -> dict[str, Any]:
    """The present values of a running run's columns, from its journal after a place."""
    key = store.id, row["run_id"]
    begun_at, run = _following.get(key, ((), None))
    if run is None or begun_at != place:
        known = {name: None if pd.isna(row[name]) else row[name] for name in LIVE}
        times = [
            moment and moment.timestamp()
            for moment in (known["phase_started"], known["compiling_since"])
        ]
        run = RunProgress(
            RunDir(Path(row["folder"])),
            experiment_spec(store, experiment_id),
            phase=known["phase"] or "",
            phase_started=times[0],
            compiling_since=times[1],
            compiled_seconds=row["compiled_seconds"],
            steps_done=row["steps_done"],
            loss=row["last_loss"],
        )
        run.skip_to(*place)
        _following[key] = place, run
    run.update()
    moments = timestamp(pd.Series([run.phase_started, run.compiling_since], dtype=float))
    values = (run.phase or None, *moments, run.compiled_seconds, run.steps_done, run.loss)
    return dict(zip(LIVE, values, strict=True))
