"""What the scenario `accuracy` found: one status for each part, one row for each tensor."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import parsed, rows


@kept
def accuracy_statuses(store: Store, experiment_id: str) -> pd.DataFrame:
    """part, status, message, tolerance, iterations, notes (a list) of each part checked."""
    columns = "part, status, message, tolerance, iterations, notes"
    return parsed(rows(store, experiment_id, "accuracy_statuses", columns, "seq"), "notes")


@kept
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
