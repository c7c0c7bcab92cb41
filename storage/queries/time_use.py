"""Reads the activities of every run over time, and the seconds spent so far on setting up, steps,
compiling and evaluations."""

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from breakeven.runner.protocol.run_dir import RunDir
from breakeven.storage.index.store import Store
from breakeven.storage.queries.rows import IN_EXPERIMENT, rows
from breakeven.storage.result_caches import memo, revision

ELAPSED = (
    "compiling",
    "profiling",
    "checking",
    "evaluating",
    "steps",
    "loading",
    "finishing",
    "waiting",
    "earlier",
)
"""Activities of an experiment; the first of several simultaneous ones counts: if one run compiles
while another loads, the experiment is compiling. The last is all that processes did before their
runs were resumed."""
ACTIVITY_NAMES = {
    "steps": "training steps",
    "profiling": "profiles",
    "checking": "checks",
    "earlier": "earlier processes",
}
"""Activities with another displayed name."""
SHORTEST_SHOWN, SMALLEST_SHARE = 0.5, 0.02
"""Seconds, and share of the total, below which an activity is not shown."""
KIND_OF_PHASE = {"training": "steps", "preparing": "loading", "done": "finishing"}
"""Phases of a run with another name as activities."""


def shown_parts(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    """Name and seconds of activities that took long enough; `seconds`: the result of `elapsed`."""
    least = max(SHORTEST_SHOWN, SMALLEST_SHARE * sum(seconds.values()))
    return [
        (ACTIVITY_NAMES.get(kind, kind), took) for kind, took in seconds.items() if took >= least
    ]


KINDS = "".join(f"WHEN '{phase}' THEN '{kind}' " for phase, kind in KIND_OF_PHASE.items())
SPANS = f"""
    claims AS (
        SELECT run_id, claimed, ended FROM progress JOIN runs USING (run_id)
        WHERE {IN_EXPERIMENT}),
    compiled AS (SELECT run_id, time, seconds FROM compile_ends
        WHERE {IN_EXPERIMENT} AND isfinite(seconds)),
    begun AS (
        SELECT run_id, CASE phase {KINDS} ELSE phase END AS kind, time, seq FROM phases
        WHERE {IN_EXPERIMENT}
        UNION ALL SELECT run_id, 'loading', claimed, -1 FROM claims WHERE claimed IS NOT NULL),
    last AS (SELECT greatest(max(claimed), max(ended), (SELECT max(time) FROM begun),
        (SELECT max(time) FROM blocks WHERE {IN_EXPERIMENT}),
        (SELECT max(time) FROM compiled), $2::DOUBLE) AS until FROM claims),
    unclipped AS (
        SELECT run_id, kind, time AS start,
            lead(time) OVER (PARTITION BY run_id ORDER BY time, seq) AS "end" FROM begun
        UNION ALL SELECT run_id, 'compiling', time - seconds, time FROM compiled),
    spans AS (
        SELECT run_id, kind, greatest(start, claimed) AS start,
            coalesce("end", ended, until) AS "end"
        FROM unclipped JOIN claims USING (run_id), last WHERE claimed IS NOT NULL)"""
"""The activities of each run's newest process, named as in `ELAPSED`, with begin and end in seconds
since the epoch. An open activity ends with the latest line of the experiment's journals or at the
moment `$2`, whichever is later: `last.until`."""
EARLIER = f"""
    lines AS (
        SELECT run_id, time FROM blocks WHERE {IN_EXPERIMENT}
        UNION ALL SELECT run_id, time FROM evaluations WHERE {IN_EXPERIMENT}
        UNION ALL SELECT run_id, time FROM compiled),
    old AS (
        SELECT run_id, p.time AS start, coalesce(lead(p.time) OVER later, claimed) AS next,
            coalesce(lead(phase) OVER later, 'preparing') AS next_phase
        FROM phases p JOIN claims USING (run_id) WHERE p.{IN_EXPERIMENT} AND p.time < claimed
        WINDOW later AS (PARTITION BY run_id ORDER BY p.time, p.seq)),
    earlier AS (
        SELECT run_id, start, CASE WHEN next_phase <> 'preparing' THEN next
            ELSE (SELECT max(time) FROM lines l
                WHERE l.run_id = o.run_id AND l.time >= o.start AND l.time <= o.next) END AS "end"
        FROM old o)"""
"""The phases of each run's processes before the newest one. A process begins with `preparing`; the
last phase of the one before ends with its last line."""
NUM_STRETCHES = 300
"""Number of parts of an experiment's time; a run's equal activities of one part are merged."""


@memo(revision)
def activities(store: Store, experiment_id: str, until: float | None = None) -> pd.DataFrame:
    """run_id, label, role, kind, start, end, in seconds since the first run was claimed.

    kind: a name of `ELAPSED`, without waiting. An open activity ends with the latest line of the
    experiment's journals, or at `until`, in seconds since the epoch, if that is later. At most
    `NUM_STRETCHES` rows for each run and kind.
    """
    table = f"""(
        WITH {SPANS},
        going_on AS (
            SELECT run_id, 'compiling' AS kind, arg_max(s.time, s.seq) AS start, any_value(until)
            FROM compile_starts s JOIN claims USING (run_id), last
            WHERE s.{IN_EXPERIMENT} AND ended IS NULL AND s.seq > coalesce(
                (SELECT max(seq) FROM compile_ends e
                    WHERE e.{IN_EXPERIMENT} AND e.run_id = s.run_id), -1)
            GROUP BY run_id),
        placed AS (
            SELECT run_id, kind, start - began AS start, "end" - began AS "end",
                floor({NUM_STRETCHES} * (start - began) / (until - began)) AS stretch
            FROM (FROM spans UNION ALL FROM going_on), last,
                (SELECT min(claimed) AS began FROM claims)
            WHERE kind <> 'waiting' AND start < "end")
        SELECT run_id, kind, min(start) AS start, max("end") AS "end" FROM placed
        GROUP BY run_id, kind, stretch)"""
    return rows(store, experiment_id, table, 'kind, start, "end"', "start", until)


@memo(revision)
def elapsed(store: Store, experiment_id: str) -> tuple[dict[str, float], float | None]:
    """Seconds of wall time by activity, in the order of `ELAPSED`. The second value is the end of
    the reported time, in seconds since the epoch: the last line of the journals, or the end of the
    experiment; None before the first claim. Omits time without a process, such as before rounds are
    added. A process before a run's newest one counts from its claim to its exit record; one that
    left none, from its first phase to its last line."""
    number = store.number_of(experiment_id)
    folders = store.query(
        f"SELECT folder FROM runs JOIN progress USING (run_id) WHERE {IN_EXPERIMENT}", [number]
    )["folder"].dropna()
    before = [times for folder in folders for times in RunDir(Path(folder)).earlier_processes]
    under_way = ", ".join(
        f"sum(change) FILTER (kind = '{kind}') OVER so_far AS {kind}" for kind in ELAPSED
    )
    doing = "".join(f"WHEN {kind} > 0 THEN '{kind}' " for kind in ELAPSED)
    activities = store.query(
        f"""
        WITH {SPANS}, {EARLIER},
        counted AS (
            SELECT kind, start, "end" FROM spans
            UNION ALL SELECT 'earlier', start, "end" FROM earlier
            UNION ALL SELECT 'earlier', unnest($3::DOUBLE[]), unnest($4::DOUBLE[])),
        edges AS (
            SELECT kind, start AS time, 1 AS change FROM counted WHERE start < "end"
            UNION ALL SELECT kind, "end", -1 FROM counted WHERE start < "end"),
        moments AS (
            SELECT time, lead(time) OVER so_far - time AS seconds, {under_way} FROM edges
            WINDOW so_far AS (ORDER BY time, change DESC))
        SELECT CASE {doing} END AS kind, sum(seconds) AS seconds, any_value(until)
        AS until FROM moments, last WHERE seconds > 0 GROUP BY 1 HAVING kind IS NOT NULL""",
        [number, None, [begin for begin, _ in before], [end for _, end in before]],
    )
    seconds = dict(zip(activities["kind"], activities["seconds"].astype(float), strict=True))
    until = float(activities["until"].iloc[0]) if len(activities) else None
    return {kind: seconds[kind] for kind in ELAPSED if kind in seconds}, until


@memo(revision)
def costs(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per run, in the order of the arms, all times in seconds.

    `started`, `first_turn` and `worked_until` are times since the epoch: a run's claim, its first
    turn, and its latest block or evaluation. `checked_until` is the end of its latest profile or
    check, if later; `profiling_seconds` and `checking_seconds` are the time of these so far, all
    for its newest process. `step_seconds` is the mean of steady steps, because their sum matters; a
    step longer than ten times the usual, such as in a pause of the machine, counts as ten times.
    `first_step_seconds` is the median of all steps without compiling; the first of these are slow.
    `evaluations` counts evaluations of the run, each with all its splits; `compiled_` ones are
    under the run's own backend, and the first of them compiles.
    """
    return store.query(
        f"""
        WITH {SPANS},
        closing AS (
            SELECT run_id, max("end") FILTER (kind IN ('profiling', 'checking')) AS checked_until,
                sum("end" - start) FILTER (kind = 'profiling') AS profiling_seconds,
                sum("end" - start) FILTER (kind = 'checking') AS checking_seconds
            FROM spans GROUP BY run_id),
        phase AS (
            SELECT run_id, min(time) FILTER (phase = 'training') AS first_turn
            FROM phases WHERE {IN_EXPERIMENT} GROUP BY run_id),
        planned AS (
            SELECT run_id, arg_max(num_steps, seq) AS reported FROM workloads
            WHERE {IN_EXPERIMENT} GROUP BY run_id),
        worked AS (
            SELECT run_id, max(time) AS worked_until FROM (
                SELECT run_id, time FROM blocks WHERE {IN_EXPERIMENT}
                UNION ALL SELECT run_id, time FROM evaluations WHERE {IN_EXPERIMENT})
            GROUP BY run_id),
        judged AS MATERIALIZED (SELECT run_id, seconds, compiled, steady FROM judged_steps($1)),
        usual AS (
            SELECT run_id, 10 * median(seconds) FILTER (NOT compiled) AS most
            FROM judged GROUP BY run_id),
        done AS (
            SELECT run_id, count(*) AS steps, sum(seconds) AS seconds_of_steps,
                count(*) FILTER (compiled) AS compiled_steps,
                sum(seconds) FILTER (compiled) AS seconds_of_compiled_steps,
                avg(least(seconds, most)) FILTER (steady) AS step_seconds,
                median(seconds) FILTER (NOT compiled) AS first_step_seconds
            FROM judged JOIN usual USING (run_id) GROUP BY run_id),
        point AS (
            SELECT run_id, step, compiled, sum(seconds) AS seconds, min(seq) AS seq
            FROM judged_evaluations($1) GROUP BY run_id, step, compiled),
        placed AS (
            SELECT *, row_number() OVER (PARTITION BY run_id, compiled ORDER BY seq) AS place
            FROM point),
        evaluated AS (
            SELECT run_id, sum(seconds) AS seconds_of_evaluations,
                count(*) FILTER (NOT compiled) AS evaluations,
                median(seconds) FILTER (NOT compiled) AS evaluation_seconds,
                count(*) FILTER (compiled) AS compiled_evaluations,
                max(seconds) FILTER (compiled AND place = 1) AS first_compiled_evaluation_seconds,
                median(seconds) FILTER (compiled AND place > 1) AS compiled_evaluation_seconds
            FROM placed GROUP BY run_id)
        SELECT label, role, state, claimed AS started, ended, first_turn,
            worked_until, greatest(worked_until, checked_until) AS checked_until,
            coalesce(profiling_seconds, 0) AS profiling_seconds,
            coalesce(checking_seconds, 0) AS checking_seconds,
            coalesce(nullif(num_steps, 0), reported) AS num_steps,
            coalesce(steps, 0) AS steps, coalesce(seconds_of_steps, 0) AS seconds_of_steps,
            step_seconds, first_step_seconds,
            seconds_of_compiled_steps
                - compiled_steps * coalesce(step_seconds, first_step_seconds) AS compile_seconds,
            coalesce(seconds_of_evaluations, 0) AS seconds_of_evaluations,
            coalesce(evaluations, 0) AS evaluations, evaluation_seconds,
            coalesce(compiled_evaluations, 0) AS compiled_evaluations,
            first_compiled_evaluation_seconds, compiled_evaluation_seconds
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN planned USING (run_id) LEFT JOIN worked USING (run_id)
            LEFT JOIN done USING (run_id) LEFT JOIN evaluated USING (run_id)
            LEFT JOIN closing USING (run_id)
        WHERE {IN_EXPERIMENT} ORDER BY position""",
        [store.number_of(experiment_id), None],
    )
