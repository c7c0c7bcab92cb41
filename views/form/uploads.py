"""Uploads of data files and scripts: asks for them and stores them under safe names.

`views/access/permissions.py` decides who may upload, and which files others may use.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import streamlit as st

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import RunnerError
from breakeven.runner.logs import log_action
from breakeven.runner.specs.workload import DATA_FILE_SUFFIXES
from breakeven.views.access import permissions
from breakeven.views.access.errors import error_words
from breakeven.views.form.field_widgets import fill
from breakeven.views.shared.inert import Markdown, code
from breakeven.views.shared.resources import data_dir

MAX_MEBIBYTES = 200
"""Largest file; `.streamlit/config.toml` sets the same limit for the server."""
MAX_TOTAL_BYTES = 5 * 2**30
"""Largest size of all uploaded files together."""
LONGEST_NAME = 80
OWN_DATA = {"preset": "Your own data"}
MAX_SCRIPT_MEBIBYTES = 1
SCRIPT_SUFFIX = ".py"


class UploadRefused(RunnerError):
    """An uploaded file cannot be stored."""


def show_folders() -> None:
    """Shows the folders whose files may be used, if they are limited."""
    listed = ", ".join(code(folder) for folder in permissions.allowed_folders()[1:])
    if listed:
        st.caption(f"You can use uploaded files and files in {listed}.")


def ask_upload(form: str = "") -> None:
    """Offers to upload a data file, which the form then uses: the form of an earlier experiment, by
    the key of its widgets, or else that of the preset for data files."""

    def use(path: str) -> None:
        shown = form or "own"
        names = ("data", f"{st.session_state.get(f'{shown}.task')}.data")  # each task has its own
        for name in names:
            fill(f"{shown}.{name}", path)
        st.session_state.update({} if form else OWN_DATA)

    with st.expander("Upload a data file", icon=":material/upload_file:"):
        show_folders()
        _ask("CSV, JSONL or Parquet", "upload", MAX_MEBIBYTES, DATA_FILE_SUFFIXES, keep, use)


def ask_script_upload(widget: str) -> None:
    """Offers to upload a script, if allowed, and fills the widget of this key with its path."""
    if not permissions.scripts_may_run():
        return
    with st.expander("Upload a script", icon=":material/upload_file:"):
        st.caption(
            "One file. A script that needs further files must be in a folder of "
            f"{code(CODE_VARIABLE)}."
        )
        _ask(
            "Python",
            "upload-script",
            MAX_SCRIPT_MEBIBYTES,
            (SCRIPT_SUFFIX,),
            keep_script,
            lambda path: fill(widget, path),
        )


def _ask(
    label: Markdown,
    key: str,
    mebibytes: int,
    suffixes: Iterable[str],
    keep: Callable[[str, bytes], Path],
    use: Callable[[str], None],
) -> None:
    def use_file() -> None:
        """Writes the file's path into the form, so that no further click is needed."""
        given = st.session_state[key]
        with suppress(UploadRefused, permissions.NotAllowed, OSError):  # Shown below.
            if given is not None:
                use(str(keep(given.name, given.getvalue())))

    given = st.file_uploader(
        label,
        key=key,
        max_upload_size=mebibytes,
        on_change=use_file,
        type=[suffix.removeprefix(".") for suffix in suffixes],
    )
    if given is None:
        return
    try:
        path = keep(given.name, given.getvalue())
    except (UploadRefused, permissions.NotAllowed, OSError) as error:
        st.error(error_words(error), icon=":material/error:")
        return
    st.success(f"Stored as {code(path)}", icon=":material/check_circle:")


def keep(name: str, content: bytes) -> Path:
    """Stores the file under a safe name; the same content is stored once.

    Raises `UploadRefused` if the file is too large or no data file, `NotAllowed` if this session
    may only look.
    """
    permissions.require_acting()
    suffix = next(
        (
            ending
            for ending in sorted(DATA_FILE_SUFFIXES, key=len, reverse=True)
            if name.lower().endswith(ending)
        ),
        None,
    )
    if suffix is None:
        raise UploadRefused(f"{name!r} must end in one of {', '.join(DATA_FILE_SUFFIXES)}")
    if len(content) > MAX_MEBIBYTES * 2**20:
        raise UploadRefused(f"{name!r} must not be larger than {MAX_MEBIBYTES} MiB")
    return _write(permissions.uploads() / safe_name(name, suffix, content), content)


def keep_script(name: str, content: bytes) -> Path:
    """Stores a script in its own folder, because a script can import the files of its folder.

    Raises `UploadRefused` if the file is too large or no Python file, `NotAllowed` if this session
    may not upload code.
    """
    permissions.require_acting()
    if not permissions.scripts_may_run():
        raise permissions.NotAllowed(
            f"Scripts can be uploaded only on the machine itself, and only if {CODE_VARIABLE} "
            f"lists {permissions.scripts()}"
        )
    if not name.lower().endswith(SCRIPT_SUFFIX):
        raise UploadRefused(f"{name!r} must end in {SCRIPT_SUFFIX}")
    if len(content) > MAX_SCRIPT_MEBIBYTES * 2**20:
        raise UploadRefused(f"{name!r} must not be larger than {MAX_SCRIPT_MEBIBYTES} MiB")
    folder = safe_name(name, SCRIPT_SUFFIX, content).removesuffix(SCRIPT_SUFFIX)
    stem = plain_stem(name, SCRIPT_SUFFIX, otherwise="script").replace("-", "_")
    return _write(permissions.scripts() / folder / f"{stem}{SCRIPT_SUFFIX}", content)


def _write(path: Path, content: bytes) -> Path:
    """Writes the file if it does not exist; raises `UploadRefused` if all uploaded files would
    exceed the limit."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    folders = (permissions.uploads(), permissions.scripts())
    there = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    if sum(file.stat().st_size for file in there) + len(content) > MAX_TOTAL_BYTES:
        raise UploadRefused(
            f"Uploaded files must not take more than {MAX_TOTAL_BYTES // 2**30} GiB together. "
            f"The administrator can delete some in {' and '.join(map(str, folders))}"
        )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
        log_action(data_dir().logs, "upload", path.name, bytes=len(content))
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def safe_name(name: str, suffix: str, content: bytes) -> str:
    """`reviews-1f2e3d4c5b6a.csv`: letters, digits and dashes, and a part of the content's hash."""
    return f"{plain_stem(name, suffix)}-{hashlib.sha256(content).hexdigest()[:12]}{suffix}"


def plain_stem(name: str, suffix: str, otherwise: str = "data") -> str:
    """A file's name without folders and suffix, with letters, digits and dashes only."""
    stem = Path(name.replace("\\", "/")).name
    stem = stem[: len(stem) - len(suffix)]
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:LONGEST_NAME] or otherwise
