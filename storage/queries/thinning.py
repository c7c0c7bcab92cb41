"""Thins long series to the points that a line of a chart shows."""

from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.storage.queries.rows import ends_of_runs

MAX_POINTS = 1000
"""Default number of points per line of a chart."""


def thinned_runs(frame: pd.DataFrame, column: str, max_points: int) -> pd.DataFrame:
    """Every run of a frame, `thinned`."""
    values = frame[column].to_numpy(dtype=float)
    kept = [
        begin + _extremes(values[begin:end], max_points)
        for begin, end in pairwise(ends_of_runs(frame))
    ]
    return frame.iloc[np.concatenate(kept)].reset_index(drop=True) if kept else frame


def thinned(run: pd.DataFrame, column: str, max_points: int = MAX_POINTS) -> pd.DataFrame:
    """The rows of a run; of more than `max_points` the lowest and the highest of each stretch, the
    first of equal ones. A value that is not finite counts as 0, so that a line shows it."""
    return run.iloc[_extremes(run[column].to_numpy(dtype=float), max_points)]


def _extremes(values: NDArray[np.float64], max_points: int) -> NDArray[np.intp]:
    """The places of the values that `thinned` keeps."""
    count, num_stretches = len(values), max(max_points // 2, 1)
    if count <= max_points:
        return np.arange(count)
    stretch = np.arange(count) * num_stretches // count
    begins = np.searchsorted(stretch, np.arange(num_stretches))
    values = np.where(np.isfinite(values), values, 0.0)
    kept = []
    for extreme in (np.minimum, np.maximum):
        places = np.flatnonzero(values == extreme.reduceat(values, begins)[stretch])
        kept.append(places[np.unique(stretch[places], return_index=True)[1]])
    return np.unique(np.concatenate(kept))
