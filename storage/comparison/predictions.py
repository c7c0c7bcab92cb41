"""Reads prediction files: which labels a run takes for which, and on which samples runs disagree.

Such a file has one row per sample of a split, in its order: `label`, `prediction`, `logits`, and of
a backend's run `compiled_prediction` and `compiled_logits` (docs/events.md). Where labels are no
classes, all answers here are empty. Each function raises `PredictionsUnreadable`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from runner.errors import RunnerError
from runner.folders.inside import open_inside
from runner.texts import printable
from storage.errors import PredictionsUnreadable

LABEL, PREDICTION, LOGITS = "label", "prediction", "logits"
COMPILED_PREDICTION, COMPILED_LOGITS = "compiled_prediction", "compiled_logits"


@dataclass(frozen=True)
class PredictionFile:
    """A file of a run folder, by its path relative to it, as the run's journal names it."""

    folder: Path
    name: str


def confusion(file: PredictionFile, labels: Sequence[str] | None = None) -> pd.DataFrame:
    """How many samples of each label (rows) were given each prediction (columns).

    `labels` names the classes in the order of their numbers; without it they keep their numbers.
    Classes that never occur are counted as 0.
    """
    frame = _read(file, LABEL, PREDICTION, LOGITS)
    if frame.empty or not _has_classes(frame):
        return pd.DataFrame()
    names = labels or [str(number) for number in range(len(frame[LOGITS].iloc[0]))]
    numbers = range(len(names))
    counts = pd.crosstab(frame[LABEL], frame[PREDICTION])
    counts = counts.reindex(index=numbers, columns=numbers, fill_value=0)
    return pd.DataFrame(
        counts.to_numpy(),
        index=pd.Index(names, name=LABEL),
        columns=pd.Index(names, name=PREDICTION),
    )


def disagreements(files: Mapping[str, PredictionFile], baseline: str) -> pd.DataFrame:
    """The samples for which a run's prediction is not the baseline's.

    `files` has each run's file by the run's label, all of one split; `baseline` is one of these
    labels. Columns: `sample` (place in the split), `label`, and for every run its prediction under
    its own label and the margin of it under `margin of <label>`: the probability of the prediction
    minus that of the next likely class. Numbers of classes, not names.
    """
    frames = {run: _read(file, LABEL, PREDICTION, LOGITS) for run, file in files.items()}
    if not all(_has_classes(frame) for frame in frames.values()):
        return pd.DataFrame()
    table = frames[baseline][[LABEL]]
    for run, frame in frames.items():
        columns = {run: frame[PREDICTION], f"margin of {run}": _margins(frame[LOGITS])}
        table = table.join(pd.DataFrame(columns), how="inner")
    differs = table[list(frames)].ne(table[baseline], axis="index").any(axis="columns")
    return table[differs].rename_axis("sample").reset_index()


def inference_disagreements(file: PredictionFile) -> pd.DataFrame:
    """The samples for which the compiled model predicts another class than the same weights do.

    Columns: sample, label, prediction, compiled_prediction, margin, compiled_margin.
    """
    columns = (LABEL, PREDICTION, COMPILED_PREDICTION, LOGITS, COMPILED_LOGITS)
    frame = _read(file, *columns)
    if not _has_classes(frame):
        return pd.DataFrame()
    frame["margin"] = _margins(frame[LOGITS])
    frame["compiled_margin"] = _margins(frame[COMPILED_LOGITS])
    differs = frame[PREDICTION] != frame[COMPILED_PREDICTION]
    shown = frame[differs].drop(columns=[LOGITS, COMPILED_LOGITS])
    return shown.rename_axis("sample").reset_index()


def _read(file: PredictionFile, *columns: str) -> pd.DataFrame:
    # A folder that was copied here may hold and name anything, and pyarrow raises much.
    try:
        with open_inside(file.folder, file.name) as opened:
            frame = pd.read_parquet(opened, columns=list(columns))
        for name in columns:
            if name in (LOGITS, COMPILED_LOGITS):
                _as_matrix(frame[name])
            else:
                frame[name] = pd.to_numeric(frame[name])
    except (RunnerError, OSError, ValueError, KeyError, TypeError, NotImplementedError) as error:
        why = str(error).partition("\n")[0]
        raise PredictionsUnreadable(
            f"{printable(file.folder / file.name)} is no file of predictions with "
            f"{', '.join(columns)}: {printable(why)}"
        ) from None
    return frame


def _as_matrix(logits: pd.Series) -> NDArray[np.float64]:
    """One row per sample; raises `ValueError` or `TypeError` unless all have as many numbers."""
    values = np.stack(logits.to_list()).astype(float) if len(logits) else np.empty((0, 1))
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError("logits are not lists of numbers")
    return values


def _has_classes(frame: pd.DataFrame) -> bool:
    return bool(pd.api.types.is_integer_dtype(frame[LABEL]))


def _margins(logits: pd.Series) -> NDArray[np.float64]:
    """Probability of the likeliest class minus that of the next one, for each row of logits."""
    if logits.empty:
        return np.empty(0)
    values = _as_matrix(logits)
    if values.shape[1] < 2:
        return np.full(len(values), np.nan)
    powers = np.exp(values - values.max(axis=1, keepdims=True))
    probabilities = np.sort(powers / powers.sum(axis=1, keepdims=True), axis=1)
    margins: NDArray[np.float64] = probabilities[:, -1] - probabilities[:, -2]
    return margins
