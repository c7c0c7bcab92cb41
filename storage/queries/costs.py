"""What a run's parts have taken so far: setting up, steps, compiling, evaluations."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE


@kept
def costs(store: Store, experiment_id: str) -> pd.DataFrame:
    """One row per run, in the order of the variants, all times in seconds.

    `started`, `first_turn` and `worked_until` are times since the epoch: of a run's claim, its
    first turn, and its latest block or evaluation. `step_seconds` is the mean of steady steps: what
    counts is their sum. Steps that a pause of the machine fell into count ten times the usual.
    `first_step_seconds` is the median of all that compiled nothing, of which the first are slow.
    `evaluations` counts the times that the run was evaluated, on however many splits; the
    `compiled_` ones are those under the run's own backend, of which the first one compiles.
    """
    return store.query(
        f"""
        WITH phase AS (
            SELECT run_id, min(time) FILTER (phase = 'training') AS first_turn
            FROM phases WHERE {MINE} GROUP BY run_id),
        planned AS (
            SELECT run_id, arg_max(num_steps, seq) AS said FROM workloads
            WHERE {MINE} GROUP BY run_id),
        worked AS (
            SELECT run_id, max(time) AS worked_until FROM (
                SELECT run_id, time FROM blocks WHERE {MINE}
                UNION ALL SELECT run_id, time FROM evaluations WHERE {MINE})
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
            worked_until, coalesce(nullif(num_steps, 0), said) AS num_steps,
            coalesce(steps, 0) AS steps, coalesce(seconds_of_steps, 0) AS seconds_of_steps,
            step_seconds, first_step_seconds, coalesce(compiled_steps, 0) AS compiled_steps,
            seconds_of_compiled_steps
                - compiled_steps * coalesce(step_seconds, first_step_seconds) AS compile_seconds,
            coalesce(seconds_of_evaluations, 0) AS seconds_of_evaluations,
            coalesce(evaluations, 0) AS evaluations, evaluation_seconds,
            coalesce(compiled_evaluations, 0) AS compiled_evaluations,
            first_compiled_evaluation_seconds, compiled_evaluation_seconds
        FROM runs JOIN progress USING (run_id) LEFT JOIN phase USING (run_id)
            LEFT JOIN planned USING (run_id) LEFT JOIN worked USING (run_id)
            LEFT JOIN done USING (run_id) LEFT JOIN evaluated USING (run_id)
        WHERE {MINE} ORDER BY position""",
        [store.number_of(experiment_id)],
    )
