"""Reads prediction files: which labels a run confuses, and on which samples runs disagree.

Such a file has one row per sample of a split, in its order: `label`, `prediction`, `logits`, and
for a backend `compiled_prediction` and `compiled_logits` (docs/events.md). If labels are no
classes, all results here are empty. Each function raises `PredictionsUnreadable`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.plain_files import open_inside
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage.errors import PredictionsUnreadable

MAX_ROWS, MAX_NUMBERS = 2_000_000, 20_000_000
"""Limits of a file: samples, and logits of all samples in one column."""
MAX_CLASSES = 1_000
"""Limit of a table of labels by predictions."""
CONFIG: dict[str, Any] = {
    "memory_limit": "1GB",
    "threads": 1,
    "temp_directory": "",
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
}
NUMBER = re.compile(r"(U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|FLOAT|DOUBLE|BOOLEAN)")
LABEL, PREDICTION, LOGITS = "label", "prediction", "logits"
COMPILED_PREDICTION, COMPILED_LOGITS = "compiled_prediction", "compiled_logits"


@dataclass(frozen=True)
class PredictionFile:
    """A file of a run folder; `name` is its path in the folder, from the run's journal."""

    folder: Path
    name: str


def confusion(file: PredictionFile, labels: Sequence[str] | None = None) -> pd.DataFrame:
    """The number of samples for each label (rows) and prediction (columns).

    `labels` names the classes in the order of their numbers; without it the numbers are the names.
    Classes that never occur have the count 0.
    """
    frame = _read(file, LABEL, PREDICTION, LOGITS)
    if frame.empty or not _has_classes(frame):
        return pd.DataFrame()
    names = labels or [str(number) for number in range(len(frame[LOGITS].iloc[0]))]
    if len(names) > MAX_CLASSES:
        raise PredictionsUnreadable(
            f"{printable(file.folder / file.name)} has {len(names):,} classes; a table of "
            f"predictions by label has at most {MAX_CLASSES:,}"
        )
    pairs = frame[[LABEL, PREDICTION]].to_numpy(float)
    pairs = pairs[np.isin(pairs, np.arange(len(names))).all(axis=1)].astype(int)
    counts = np.bincount(pairs @ [len(names), 1], minlength=len(names) ** 2)
    return pd.DataFrame(
        counts.reshape(len(names), len(names)),
        index=pd.Index(names, name=LABEL),
        columns=pd.Index(names, name=PREDICTION),
    )


def disagreements(files: Mapping[str, PredictionFile], baseline: str) -> pd.DataFrame:
    """The samples for which a run's prediction is not the baseline's.

    `files` has each run's file by the run's label, all of one split; `baseline` is one of these
    labels. Columns: `sample` (position in the split), `label`, and for each run `<label>` with its
    prediction and `margin of <label>`: the probability of the prediction minus that of the next
    likely class. Classes are numbers, not names.
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
    """The samples for which the compiled model predicts another class than the uncompiled model.

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
    # A copied folder may have any files and names, and readers raise many types of errors.
    try:
        with (
            open_inside(file.folder, file.name) as opened,
            duckdb.connect(":memory:", config=CONFIG) as reader,
        ):
            # Not by its name, which may belong to another file by now.
            source = reader.read_parquet(f"/dev/fd/{opened.fileno()}")
            # DuckDB ignores upper and lower case in names.
            frame = _within_bounds(source.select(*columns)).df().set_axis([*columns], axis=1)
        for name in columns:
            if name in (LOGITS, COMPILED_LOGITS):
                _as_matrix(frame[name])
    except (RunnerError, OSError, ValueError, TypeError, duckdb.Error) as error:
        why = str(error).partition("\n")[0]
        raise PredictionsUnreadable(
            f"{printable(file.folder / file.name)} is no file of predictions with "
            f"{', '.join(columns)}: {printable(why)}"
        ) from None
    return frame


def _within_bounds(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same rows; raises `ValueError` if they are no numbers, or too many for the memory."""
    for name, kind in zip(rows.columns, map(str, rows.types), strict=True):
        is_list = name in (LOGITS, COMPILED_LOGITS)
        if not NUMBER.fullmatch(kind.removesuffix("[]")) or kind.endswith("[]") != is_list:
            raise ValueError(
                f"{name} is {kind}, and no {'list of numbers' if is_list else 'number'}"
            )
    (count,) = rows.count("*").fetchone() or (0,)
    if count > MAX_ROWS:
        raise ValueError(f"it has {count:,} rows, more than {MAX_ROWS:,}")
    for name in {LOGITS, COMPILED_LOGITS} & {*rows.columns}:
        (numbers,) = rows.aggregate(f"sum(len({name}))").fetchone() or (0,)
        if (numbers or 0) > MAX_NUMBERS:
            raise ValueError(f"{name} has {numbers:,} numbers, more than {MAX_NUMBERS:,}")
    return rows


def _as_matrix(logits: pd.Series) -> NDArray[np.float64]:
    """One row per sample; raises `ValueError` or `TypeError` unless all have equal lengths."""
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


def count_disagreements(
    differ: pd.DataFrame, files: dict[str, PredictionFile], spec: ExperimentSpec, baseline: str
) -> pd.DataFrame:
    """For each run, the number of answers unlike the baseline's and unlike its own uncompiled."""
    rows = []
    for arm in spec.arms:
        if arm.label == baseline or arm.label not in files:
            continue
        inner = None
        if arm.backend is not None and spec.evaluation.compiled:
            inner = len(inference_disagreements(files[arm.label]))
        other = 0
        if not differ.empty:
            other = int((differ[arm.label] != differ[baseline]).sum())
        rows.append({"run": arm.label, "unlike_baseline": other, "unlike_own_weights": inner})
    return pd.DataFrame(rows)


def named(differ: pd.DataFrame, runs: Sequence[str], labels: Sequence[str]) -> pd.DataFrame:
    """The table with names instead of numbers for classes that have names."""
    names = dict(enumerate(labels))
    titles = {"label": "true label", **{run: f"predicted by {run}" for run in runs}}
    shown = differ.assign(
        **{column: [names.get(number, number) for number in differ[column]] for column in titles}
    )
    return shown.rename(columns=titles)
