"""Imports of reports, run folders, results of PyTorch's benchmarks and data files; and the
formats of these benchmarks, as downloads and as imported rows.

Executes nothing of what is imported; `storage/exchange/` judges its content.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import streamlit as st

from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.specs.workload import DATA_FILE_SUFFIXES
from breakeven.storage.errors import ImportUnusable, StoreError
from breakeven.storage.exchange.benchmark_formats import FORMATS, NOTES, Row, next_to_imported, rows
from breakeven.storage.exchange.imports import Imported, import_any, imported_rows
from breakeven.storage.index.store import Store
from breakeven.views.access import permissions
from breakeven.views.form import uploads
from breakeven.views.parts.downloads import download, show_table
from breakeven.views.shared import words
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.resources import EXAMPLES, data_dir, get_store, ingest_or_warn

TITLES = {
    "harness-performance-csv": ("Harness performance", "csv"),
    "harness-accuracy-csv": ("Harness accuracy", "csv"),
    "hud-json": ("HUD records", "json"),
    "cachebench-json": ("cachebench", "json"),
}
"""Label of each button, and suffix of its file."""


def buttons(store: Store, key: str) -> None:
    """A download for each format; its file is made on a click. `key` is the id of an experiment or
    of a suite run."""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("PyTorch formats:", width="content")
        for name, (title, suffix) in TITLES.items():
            write = partial(_written, FORMATS[name], store, key)
            download(
                f"{title} ({suffix.upper()})",
                write,
                f"{name}.{suffix}",
                "text/plain",
                help=NOTES.get(name),
            )


def show_imported(store: Store, key: str, read: Callable[[Store, str], list[Row]] = rows) -> None:
    """Imported rows of the Dynamo harness, if any, after the rows of this experiment, or of the
    suite run that `read` reads."""
    theirs, problems = imported_rows(store.data_dir)
    for problem in problems:
        st.warning(inert(permissions.redacted(problem)), icon=":material/upload_file:")
    if not theirs.empty:
        show_table(
            "Imported from the Dynamo harness, next to this experiment",
            next_to_imported(read(store, key), theirs),
            "imported",
            "",
        )


def _written(write: Callable[[Store, str], str], store: Store, key: str) -> bytes:
    return write(store, key).encode()


ARCHIVE_SUFFIXES = (".zip", ".tar", ".tar.gz", ".tgz")
RESULT_SUFFIXES = (".html", ".htm", ".csv", ".json")
HELP = (
    "A report or an archive (ZIP, tar, tar.gz) of run folders: all of its experiments are taken "
    "in, or nothing. CSV of the Dynamo harness and JSON of cachebench or of PyTorch's HUD: shown "
    "next to own results. Any other CSV, JSONL or Parquet: stored as a data file to train on."
)
DONE = "brought"
"""Key in the session state: the result for each file, by its id."""


@dataclass(frozen=True)
class ImportResult:
    """The result of importing one file."""

    name: str
    brought: Imported = field(default_factory=Imported)
    data_file: Path | None = None
    problem: str = ""
    """Why the file was refused; continues a sentence that begins with its name."""


@st.fragment
def show_import() -> None:
    """A menu for people who may act; its content is made once it is open."""
    if not permissions.may_act():
        return
    menu = st.popover("Import", icon=":material/upload:", key="import", on_change="rerun")
    if not menu.open:
        return
    with menu:
        given = st.file_uploader(
            "Reports, run folders, results, data files",
            accept_multiple_files=True,
            help=HELP,
            key="import-files",
            max_upload_size=uploads.MAX_MEBIBYTES,
            type=accepted(),
        )
        known: dict[str, ImportResult] = st.session_state.setdefault(DONE, {})
        if new := [file for file in given if file.file_id not in known]:
            with st.spinner("Checking the files …"):
                known |= {
                    file.file_id: import_upload(data_dir(), file.name, file.getvalue())
                    for file in new
                }
            ingest_or_warn(get_store().ingest_all)
            st.rerun()  # The page behind the menu shows the imported items.
        for file in given:
            _show_result(known[file.file_id])


def accepted() -> list[str]:
    """Suffixes of accepted files, in Streamlit's form."""
    every = {*ARCHIVE_SUFFIXES, *RESULT_SUFFIXES, *DATA_FILE_SUFFIXES}
    return sorted(suffix.removeprefix(".") for suffix in every)


def import_upload(folder: DataDir, name: str, content: bytes) -> ImportResult:
    """Imports a file of any accepted kind. Raises `NotAllowed` if this session may only look."""
    permissions.require_acting()
    try:
        if _is_data_file(name, content):
            return ImportResult(name, data_file=uploads.keep(name, content))
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary, _plain_name(name))
            file.write_bytes(content)
            try:
                return ImportResult(name, import_any(folder, file, EXAMPLES))
            except ImportUnusable as error:
                problem = str(error).replace(f"{temporary}/", "").removeprefix(f"{file.name} ")
                return ImportResult(name, problem=problem)
    except (RunnerError, StoreError, OSError) as error:
        return ImportResult(name, problem=f"is not taken: {error}")


def _is_data_file(name: str, content: bytes) -> bool:
    """Whether a file has training data; its first line tells whether it is a harness result."""
    lower = name.lower()
    if not lower.endswith(tuple(DATA_FILE_SUFFIXES)):
        return False
    first = content[:4096].partition(b"\n")[0].split(b",")
    is_result = lower.endswith(".csv") and {b"dev", b"name", b"batch_size"} <= set(first)
    return not is_result and not lower.endswith(".json")


def _plain_name(name: str) -> str:
    """A safe name for the imported file: letters, digits, dashes and its suffix."""
    end = next(
        (
            suffix
            for suffix in (*ARCHIVE_SUFFIXES, *RESULT_SUFFIXES)
            if name.lower().endswith(suffix)
        ),
        "",
    )
    return uploads.plain_stem(name, end) + end


def _show_result(result: ImportResult) -> None:
    if result.problem:
        st.error(f"**{inert(result.name)}** {inert(result.problem)}", icon=":material/error:")
        return
    st.success(f"**{inert(result.name)}**: {_summary(result)}", icon=":material/check_circle:")
    for experiment_id in result.brought.runs.experiments[:5]:
        st.page_link(
            "views/experiment.py",
            label=f"Open {inert(experiment_id)}",
            icon=":material/leaderboard:",
            query_params={"experiment": experiment_id},
        )
    if result.data_file is not None:
        st.page_link(
            "views/launch.py",
            label="Train on it",
            icon=":material/arrow_forward:",
            query_params={**uploads.OWN_DATA, "own.data": str(result.data_file)},
        )


def _summary(result: ImportResult) -> Markdown:
    if result.data_file is not None:
        return f"kept as {code(result.data_file)}"
    if result.brought.rows:
        return f"{words.plural(len(result.brought.rows), 'row')} next to own results"
    runs = result.brought.runs
    new, known, left_out = map(len, (runs.new_runs, runs.known_runs, runs.left_out))
    parts = [words.plural(new, "new run")] if new else []
    parts += [f"{words.plural(known, 'run')} there already"] if known else []
    parts += [f"{words.plural(left_out, 'file')} outside of runs left out"] if left_out else []
    return ", ".join(parts)
