"""Data files that people bring along, where files by path are limited."""

import hashlib
import os
import re
from pathlib import Path

import streamlit as st

from runner.errors import RunnerError
from runner.folders import audit
from runner.specs.workload import DATA_FILE_SUFFIXES
from views.access import permissions
from views.shared.inert import code, inert
from views.shared.resources import data_dir

MAX_MEBIBYTES = 200
"""Of one file; `.streamlit/config.toml` has the server stop there, too."""
MAX_TOTAL_BYTES = 5 * 2**30
"""Of all uploaded files together."""
LONGEST_NAME = 80
OWN_DATA = {"preset": "Your own data"}


class UploadRefused(RunnerError):
    """An uploaded file cannot be kept."""


def ask_upload() -> None:
    """Offers to bring a file along; gives the way to the form that uses it."""
    with st.expander("Upload a data file", icon=":material/upload_file:"):
        permissions.show_folders()
        given = st.file_uploader(
            "CSV, JSONL or Parquet", key="upload", max_upload_size=MAX_MEBIBYTES,
            type=[suffix.removeprefix(".") for suffix in DATA_FILE_SUFFIXES],
        )  # fmt: skip
        if given is None:
            return
        try:
            path = keep(given.name, given.getvalue())
        except (UploadRefused, permissions.NotAllowed, OSError) as error:
            st.error(inert(error), icon=":material/error:")
            return
        st.success(f"Kept as {code(path)}", icon=":material/check_circle:")
        st.page_link("views/launch.py", label="Use it", icon=":material/arrow_forward:",
                     query_params={**OWN_DATA, "own.data": str(path)})  # fmt: skip


def keep(name: str, content: bytes) -> Path:
    """The file under a name that is safe; the same content is kept once.

    Raises `UploadRefused` for what is too large or no data file, `NotAllowed` where this session
    may only look.
    """
    permissions.require_acting()
    suffix = next((one for one in sorted(DATA_FILE_SUFFIXES, key=len, reverse=True)
                   if name.lower().endswith(one)), None)  # fmt: skip
    if suffix is None:
        raise UploadRefused(f"{name!r} must end in one of {', '.join(DATA_FILE_SUFFIXES)}")
    if len(content) > MAX_MEBIBYTES * 2**20:
        raise UploadRefused(f"{name!r} must not be larger than {MAX_MEBIBYTES} MiB")
    folder = permissions.uploads()
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / safe_name(name, suffix, content)
    if path.exists():
        return path
    kept = sum(entry.stat().st_size for entry in folder.iterdir())
    if kept + len(content) > MAX_TOTAL_BYTES:
        raise UploadRefused(
            f"Uploaded files must not take more than {MAX_TOTAL_BYTES // 2**30} GiB together. "
            f"Whoever runs this dashboard can delete some in {folder}"
        )
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(content)
        os.replace(partial, path)
        audit.record(data_dir(), "upload", path.name, bytes=len(content))
    finally:
        partial.unlink(missing_ok=True)
    return path


def safe_name(name: str, suffix: str, content: bytes) -> str:
    """`reviews-1f2e3d4c5b6a.csv`: letters, digits and dashes, and a part of the content's hash."""
    return f"{plain_stem(name, suffix)}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"


def plain_stem(name: str, suffix: str) -> str:
    """The name of a file without folders and ending, of letters, digits and dashes alone."""
    stem = Path(name.replace("\\", "/")).name
    stem = stem[: len(stem) - len(suffix)]
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:LONGEST_NAME] or "data"
