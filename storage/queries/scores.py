"""What evaluations scored, and where the predictions are."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE, rows

PRIMARY = "coalesce(spec::JSON->>'$.experiment.evaluation.splits[0]', 'validation')"
"""The split whose numbers speak for the run: the first one that is evaluated."""


@kept
def evaluations(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run scored after `step` steps on the primary split, without a compiler.

    The primary split is the first of `evaluation.splits`. One row per step: epoch, step, loss,
    accuracy, num_samples, seconds.
    """
    table = f"""(SELECT e.* FROM judged_evaluations($1) e JOIN runs USING (run_id)
        WHERE NOT compiled AND split = {PRIMARY})"""
    columns = "epoch + 1 AS epoch, step, loss, accuracy, num_samples, seconds"
    return rows(store, experiment_id, table, columns, "seq")


@kept
def evaluation_metrics(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every number of every evaluation: epoch, step, split, compiled, name, value, num_samples.

    `compiled` tells the compiled model from the same weights without a compiler. A loss is named
    'loss'. What is undefined has no row, so a value of NaN was not a number.
    """
    table = """(SELECT * EXCLUDE (metrics, loss),
            unnest(list_prepend({key: 'loss', value: loss}, map_entries(metrics)),
                recursive := true)
        FROM judged_evaluations($1))"""
    columns = "epoch + 1 AS epoch, step, split, compiled, key AS name, value, num_samples"
    return rows(
        store, experiment_id, f"(FROM {table} WHERE value IS NOT NULL)", columns, "seq, name"
    )


@kept
def answers(store: Store, experiment_id: str) -> pd.DataFrame:
    """How far answers of compiled models lay from those of the same weights without a compiler,
    at every evaluation and of every file of predictions: step, split, and the fields of `answers`
    (docs/events.md)."""
    table = f"""(SELECT e.* EXCLUDE (answers), unnest(answers) FROM (
            SELECT run_id, seq, step, split, answers FROM judged_evaluations($1)
            UNION ALL BY NAME
            SELECT run_id, seq, step, split, answers FROM predictions WHERE {MINE}) e
        WHERE answers IS NOT NULL)"""
    columns = """step, split, error, compared, differing, wrong, wrong_classes, margin, difference,
        tolerance, ratio, samples"""
    return rows(store, experiment_id, table, columns, "seq")


@kept
def predictions(store: Store, experiment_id: str) -> pd.DataFrame:
    """split, folder (of the run), file (relative to it, on the journal's word), num_samples;
    `storage.comparison.predictions` reads the files."""
    table = f"(SELECT p.*, folder FROM predictions p JOIN progress USING (run_id) WHERE {MINE})"
    columns = "split, folder, file, num_samples"
    return rows(store, experiment_id, table, columns, "seq", of=["predictions"])
