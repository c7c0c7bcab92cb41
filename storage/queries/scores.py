"""What tells whether a backend computes rightly: evaluations, answers, predictions, the checks of
the scenario `accuracy`, and random numbers."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.memo import memo, revision
from breakeven.storage.queries.rows import MINE, parsed, rows

PRIMARY = "coalesce(spec::JSON->>'$.experiment.evaluation.splits[0]', 'validation')"
"""The split whose numbers speak for the run: the first one that is evaluated."""


@memo(revision)
def evaluations(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each run scored after `step` steps on the primary split, without a compiler.

    The primary split is the first of `evaluation.splits`. One row per step: epoch, step, loss,
    accuracy, num_samples, seconds.
    """
    table = f"""(SELECT e.* FROM judged_evaluations($1) e JOIN runs USING (run_id)
        WHERE NOT compiled AND split = {PRIMARY})"""
    columns = "epoch + 1 AS epoch, step, loss, accuracy, num_samples, seconds"
    return rows(store, experiment_id, table, columns, "seq")


@memo(revision)
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


@memo(revision)
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


@memo(revision)
def predictions(store: Store, experiment_id: str) -> pd.DataFrame:
    """split, folder (of the run), file (relative to it, on the journal's word), num_samples;
    `storage.comparison.predictions` reads the files."""
    table = f"(SELECT p.*, folder FROM predictions p JOIN progress USING (run_id) WHERE {MINE})"
    columns = "split, folder, file, num_samples"
    return rows(store, experiment_id, table, columns, "seq", of=["predictions"])


@memo(revision)
def accuracy_statuses(store: Store, experiment_id: str) -> pd.DataFrame:
    """part, status, message, tolerance, iterations, notes (a list) of each part checked."""
    columns = "part, status, message, tolerance, iterations, notes"
    return parsed(rows(store, experiment_id, "accuracy_statuses", columns, "seq"), "notes")


@memo(revision)
def accuracy_tensors(store: Store, experiment_id: str) -> pd.DataFrame:
    """Every tensor that was compared, in the order of the check.

    `error_ratio` is its error over what the rule allows: against the reference where there is one,
    else its largest difference to the baseline's over the absolute tolerance.
    """
    columns = (
        "part, quantity, tensor, num_elements, max_difference, rmse, baseline_rmse, multiplier, "
        "tolerance, scale, passed, coalesce(rmse / (multiplier * baseline_rmse + scale * tolerance "
        "/ 10), max_difference / (scale * tolerance)) AS error_ratio"
    )
    return rows(store, experiment_id, "accuracy_tensors", columns, "seq")


@memo(revision)
def random_numbers(store: Store, experiment_id: str) -> pd.DataFrame:
    """same (whether the backend draws the same numbers as without a compiler), num_draws,
    loss_by_draw (a list, draws without a compiler first), inference_draws, error of each examined
    run."""
    latest = f"(FROM random_numbers WHERE {MINE} QUALIFY seq = max(seq) OVER (PARTITION BY run_id))"
    columns = "same, num_draws, loss_by_draw, inference_draws, error"
    return rows(store, experiment_id, latest, columns, "seq", of=["random_numbers"])


@memo(revision)
def redraws(store: Store, experiment_id: str) -> pd.DataFrame:
    """tensor, change, distances (a list): how steps with other random numbers changed each of a
    run's parameters."""
    return rows(store, experiment_id, "redraws", "tensor, change, distances", "seq")


@memo(revision)
def rehearsals(store: Store, experiment_id: str) -> pd.DataFrame:
    """form (eager, perturbed, compiled), loss_by_step (a list), reason why there are none."""
    return rows(store, experiment_id, "rehearsals", "form, loss_by_step, reason", "seq")


@memo(revision)
def dropouts(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each dropout drew, compiled or not, in the order of a forward's calls."""
    columns = "compiled, number, operation, p, tried, zeros, sum, squares, backward"
    return rows(store, experiment_id, "dropouts", columns, "seq")
