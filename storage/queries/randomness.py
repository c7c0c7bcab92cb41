"""What was found out about the random numbers that backends draw."""

import pandas as pd

from breakeven.storage.index.store import Store
from breakeven.storage.queries.kept import kept
from breakeven.storage.queries.rows import MINE, rows


@kept
def random_numbers(store: Store, experiment_id: str) -> pd.DataFrame:
    """same (whether the backend draws what is drawn without a compiler), num_draws, loss_by_draw
    (a list, those without a compiler first), inference_draws, error of each run that was asked."""
    latest = f"(FROM random_numbers WHERE {MINE} QUALIFY seq = max(seq) OVER (PARTITION BY run_id))"
    columns = "same, num_draws, loss_by_draw, inference_draws, error"
    return rows(store, experiment_id, latest, columns, "seq", of=["random_numbers"])


@kept
def redraws(store: Store, experiment_id: str) -> pd.DataFrame:
    """tensor, change, distances (a list): how steps with other random numbers changed each of a
    run's parameters."""
    return rows(store, experiment_id, "redraws", "tensor, change, distances", "seq")


@kept
def rehearsals(store: Store, experiment_id: str) -> pd.DataFrame:
    """form (eager, perturbed, compiled), loss_by_step (a list), reason why there are none."""
    return rows(store, experiment_id, "rehearsals", "form, loss_by_step, reason", "seq")


@kept
def dropouts(store: Store, experiment_id: str) -> pd.DataFrame:
    """What each dropout drew, compiled or not, in the order of a forward's calls."""
    columns = "compiled, number, operation, p, tried, zeros, sum, squares, backward"
    return rows(store, experiment_id, "dropouts", columns, "seq")
