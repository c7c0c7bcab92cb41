"""Opens tables of samples, by the library `datasets`: a file, a folder of images, or the hub."""

import glob
from collections.abc import Iterable
from typing import Any

from breakeven.runner.checks.data_file import locate
from breakeven.runner.errors import UnusableData, WorkloadError
from breakeven.runner.worker.data.hub_access import why_not_found


def open_file(source: str, *, may_be_folder: bool) -> Any:
    """All rows of a file, or the images of a folder with a subfolder for each label."""
    import datasets  # takes seconds; built-in data does not need it

    try:
        path = locate(source, may_be_folder=may_be_folder)
    except UnusableData as error:
        raise WorkloadError(f"data.source = {source!r}: {error}") from None
    # The library treats paths as patterns: `a[1].csv` would match `a1.csv`.
    literal = glob.escape(str(path))
    if path.is_dir():
        loader, files = "imagefolder", {"data_dir": literal}
    else:
        kind = path.name.removesuffix(".gz").rpartition(".")[2]
        loader, files = kind.replace("jsonl", "json"), {"data_files": literal}
    try:
        return datasets.load_dataset(loader, split="train", **files)
    except Exception as error:
        cause = error.__cause__ or error
        raise WorkloadError(f"{path} cannot be read as {loader}: {cause}") from error


def open_hub(source: str, split: str) -> Any:
    """All rows of one split of a data set on the hub."""
    import datasets  # takes seconds; built-in data does not need it

    try:
        return datasets.load_dataset(source, split=split)
    except Exception as error:
        raise WorkloadError(
            f"data.source = {source!r}, split {split!r}: {why_not_found(error)} For a file give a "
            "path that ends in .csv, .jsonl or .parquet"
        ) from error


def check_columns(table: Any, columns: Iterable[str], where: str) -> None:
    """Raises `WorkloadError` for the first column that the table lacks."""
    for column in columns:
        if column not in table.column_names:
            present = ", ".join(table.column_names)
            raise WorkloadError(f"{where} has no column {column!r}; it has {present}")
