"""Predictions: confusion and disagreement, of files as a run writes them."""

import math
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from breakeven.storage.comparison import predictions
from breakeven.storage.comparison.predictions import (
    MAX_NUMBERS,
    MAX_ROWS,
    PredictionFile,
    confusion,
    disagreements,
    inference_disagreements,
)
from breakeven.storage.errors import PredictionsUnreadable

LOG2, LOG3 = math.log(2), math.log(3)


def write(
    file: Path, labels: list, logits: list[list[float]], compiled: list | None = None
) -> PredictionFile:
    columns = {"label": labels, "prediction": np.argmax(logits, axis=1), "logits": logits}
    if compiled is not None:
        columns |= {"compiled_prediction": np.argmax(compiled, axis=1), "compiled_logits": compiled}
    pq.write_table(pa.table(columns), file)
    return PredictionFile(file.parent, file.name)


def test_confusion_counts_labels_against_predictions(tmp_path: Path) -> None:
    low, middle = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]
    file = write(tmp_path / "a.parquet", [0, 0, 1, 2, 0], [low, middle, middle, middle, low])
    table = confusion(file, ["low", "middle", "high"])
    assert table.index.tolist() == table.columns.tolist() == ["low", "middle", "high"]
    assert table.to_numpy().tolist() == [[2, 1, 0], [0, 1, 0], [0, 1, 0]]
    assert (table.index.name, table.columns.name) == ("label", "prediction")
    assert confusion(file).columns.tolist() == ["0", "1", "2"]


def test_runs_disagree_where_one_predicts_another_class_than_the_baseline(tmp_path: Path) -> None:
    # Probabilities of logits 0 and log 3 are 1/4 and 3/4, of 0 and log 2 they are 1/3 and 2/3.
    left, right = [LOG3, 0.0], [0.0, LOG2]
    files = {
        "baseline": write(tmp_path / "a.parquet", [0, 1, 1], [left, right, right]),
        "eager": write(tmp_path / "b.parquet", [0, 1, 1], [left, right, right]),
        "inductor": write(tmp_path / "c.parquet", [0, 1, 1], [left, right, left]),
    }
    table = disagreements(files, "baseline")
    assert table.to_dict("records") == [
        {
            "sample": 2,
            "label": 1,
            "baseline": 1,
            "margin of baseline": pytest.approx(1 / 3),
            "eager": 1,
            "margin of eager": pytest.approx(1 / 3),
            "inductor": 0,
            "margin of inductor": pytest.approx(1 / 2),
        }
    ]


def test_a_compiled_model_may_disagree_with_its_own_weights(tmp_path: Path) -> None:
    left, right = [1e4 + LOG3, 1e4], [0.0, LOG2]
    file = write(tmp_path / "a.parquet", [0, 1], [left, right], compiled=[left, left])
    assert inference_disagreements(file).to_dict("records") == [
        {
            "sample": 1,
            "label": 1,
            "prediction": 1,
            "compiled_prediction": 0,
            "margin": pytest.approx(1 / 3),
            "compiled_margin": pytest.approx(1 / 2),
        }
    ]


def test_labels_that_are_no_classes_have_no_confusion(tmp_path: Path) -> None:
    file = write(tmp_path / "a.parquet", [0.5, 1.5], [[0.4], [1.6]], compiled=[[0.4], [1.6]])
    assert confusion(file).empty
    assert disagreements({"baseline": file}, "baseline").empty
    assert inference_disagreements(file).empty


def test_a_file_that_holds_no_predictions_is_named(tmp_path: Path) -> None:
    without = write(tmp_path / "without.parquet", [0], [[1.0, 0.0]])
    with pytest.raises(PredictionsUnreadable, match=r"without\.parquet .* compiled_prediction"):
        inference_disagreements(without)
    for name, content in (("empty.parquet", b""), ("text.parquet", b"label\n1\n")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PredictionsUnreadable, match=name):
            confusion(PredictionFile(tmp_path, name))
    with pytest.raises(PredictionsUnreadable, match="gone"):
        confusion(PredictionFile(tmp_path, "gone.parquet"))


def test_nothing_outside_the_run_folder_is_opened_on_its_word(tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.parquet", [0], [[1.0, 0.0]])
    run = tmp_path / "run"
    (run / "artifacts").mkdir(parents=True)
    (run / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    (run / "way").symlink_to(tmp_path)
    os.mkfifo(run / "pipe")
    assert not confusion(secret).empty
    names = [
        "../secret.parquet",
        str(tmp_path / "secret.parquet"),
        "link.parquet",
        "pipe",
        "way/secret.parquet",
        "artifacts/../../secret.parquet",
        "artifacts",
        "",
        "..",
        "a\0b",
        "artifacts/" * 5000,
    ]
    for name in names:
        with pytest.raises(PredictionsUnreadable):
            confusion(PredictionFile(run, name))


@pytest.mark.parametrize(
    "columns",
    [
        {"label": ["a"], "prediction": [0], "logits": [[1.0, 0.0]]},
        {"label": [0], "prediction": [[0]], "logits": [[1.0, 0.0]]},
        {"label": [0], "prediction": [0], "logits": [1.0]},
        {"label": [0, 1], "prediction": [0, 1], "logits": [[1.0, 0.0], [1.0]]},
        {"label": [0], "prediction": [0], "logits": [["x", "y"]]},
        {"label": [0], "prediction": [0], "logits": [[]]},
    ],
)
def test_a_file_whose_columns_hold_something_else_is_named(tmp_path: Path, columns: dict) -> None:
    pq.write_table(pa.table(columns), tmp_path / "odd.parquet")
    for read in (confusion, lambda file: disagreements({"baseline": file}, "baseline")):
        with pytest.raises(PredictionsUnreadable, match=r"odd\.parquet"):
            read(PredictionFile(tmp_path, "odd.parquet"))


def lying(file: Path, numbers: int, says: int) -> PredictionFile:
    """One sample with so many logits, of which the table of contents tells other than there are."""

    def written(number: int, length: int = 0) -> bytes:
        """As Parquet's footer has it (zigzag, seven bits in a byte), in so many bytes."""
        left, varint = number << 1, []
        while left or not varint:
            left, low = left >> 7, left & 127
            varint.append(low)
        varint += [0] * (length - len(varint))
        return bytes([*(byte | 128 for byte in varint[:-1]), varint[-1]])

    many = pa.ListArray.from_arrays(pa.array([0, numbers]), pa.array(np.zeros(numbers, "f4")))
    pq.write_table(
        pa.table({"label": [0], "prediction": [0], "logits": many}),
        file,
        compression="zstd",
        data_page_size=2**30,
    )
    content, true = file.read_bytes(), written(numbers)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    assert true in content[footer:]
    other = content[footer:].replace(true, written(says, len(true)))
    file.write_bytes(content[:footer] + other)
    return PredictionFile(file.parent, file.name)


def test_a_kilobyte_that_becomes_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With limits a tenth as large, which take a tenth of the time."""
    most_rows, most_numbers = MAX_ROWS // 10, MAX_NUMBERS // 10
    monkeypatch.setattr(predictions, "MAX_ROWS", most_rows)
    monkeypatch.setattr(predictions, "MAX_NUMBERS", most_numbers)
    zeros = pa.array(np.zeros(most_rows + 1, np.int64))
    rows = {"label": zeros, "prediction": zeros, "logits": pa.array([[0.0]]).take(zeros)}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    lying(tmp_path / "numbers.parquet", most_numbers + 1, most_numbers + 1)
    for name in ("rows", "numbers"):
        with pytest.raises(PredictionsUnreadable, match=rf"has [\d,]+00,001 {name}, more than"):
            confusion(PredictionFile(tmp_path, f"{name}.parquet"))
    assert confusion(lying(tmp_path / "lie.parquet", most_numbers + 1, 2)).shape == (2, 2)


def test_as_much_as_is_allowed_is_read_and_one_more_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most four rows and eight numbers: four rows of two, but neither five rows, nor three rows
    of three numbers."""
    monkeypatch.setattr(predictions, "MAX_ROWS", 4)
    monkeypatch.setattr(predictions, "MAX_NUMBERS", 8)
    assert confusion(write(tmp_path / "most.parquet", [0] * 4, [[0.0, 1.0]] * 4)).shape == (2, 2)
    with pytest.raises(PredictionsUnreadable, match="has 5 rows, more than 4"):
        confusion(write(tmp_path / "long.parquet", [0] * 5, [[0.0]] * 5))
    with pytest.raises(PredictionsUnreadable, match="has 9 numbers, more than 8"):
        confusion(write(tmp_path / "wide.parquet", [0] * 3, [[0.0, 1.0, 2.0]] * 3))


def test_classes_that_nobody_could_look_at_make_no_table(tmp_path: Path) -> None:
    wide = write(tmp_path / "wide.parquet", [0, 1], [[0.0] * 1001] * 2)
    with pytest.raises(PredictionsUnreadable, match="has 1,001 classes"):
        confusion(wide)
    # Numbers that are no class of the run's count nowhere.
    names = {"Label": [0, 1, 2**62, -1], "prediction": [1, 1, 0, 0], "logits": [[0.0, 0.0]] * 4}
    pq.write_table(pa.table(names), tmp_path / "odd.parquet")
    counts = confusion(PredictionFile(tmp_path, "odd.parquet")).to_numpy().tolist()
    assert counts == [[0, 1], [0, 1]]
