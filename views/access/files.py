"""Files that people name or upload.

If the dashboard serves others, a file must be an upload or in a folder that the operator named.
Scripts can be uploaded only on this machine, where their owner could also start them by hand.
"""

import hashlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import streamlit as st

from breakeven.runner.checks import user_code
from breakeven.runner.checks.user_code import CODE_VARIABLE
from breakeven.runner.errors import InvalidSpec, RunnerError
from breakeven.runner.folders import audit
from breakeven.runner.project import PROJECT_ROOT
from breakeven.runner.specs.experiment import DataSpec, ExperimentSpec, ModelSpec
from breakeven.runner.specs.workload import BUILTIN, DATA_FILE_SUFFIXES, SCRIPT_DATA
from breakeven.views.access import doors, permissions
from breakeven.views.shared.inert import Markdown, code, inert
from breakeven.views.shared.resources import data_dir

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w-][\w.-]*)?")
MAX_MEBIBYTES = 200
"""Largest file; `.streamlit/config.toml` sets the same limit for the server."""
MAX_TOTAL_BYTES = 5 * 2**30
"""Largest size of all uploaded files together."""
LONGEST_NAME = 80
OWN_DATA = {"preset": "Your own data"}
OWN_SCRIPT = {"preset": "Your own script"}
MAX_SCRIPT_MEBIBYTES = 1
SCRIPT_SUFFIX = ".py"


class UploadRefused(RunnerError):
    """An uploaded file cannot be stored."""


def files_are_limited() -> bool:
    """Whether this session may use only files in folders that the operator named."""
    return doors.serves_others(st.context.headers)


def uploads() -> Path:
    """The folder of uploaded files."""
    return data_dir().path / "uploads"


def scripts() -> Path:
    """The folder of uploaded scripts, separate from data, which others may upload."""
    return data_dir().path / "scripts"


def allowed_folders() -> list[Path]:
    """Folders from which others may use files, resolved; uploads first."""
    named = doors.settings().serving.files
    return [uploads().resolve(), *(Path(entry).expanduser().resolve() for entry in named)]


def check_files(spec: ExperimentSpec) -> None:
    """Raises `InvalidSpec` for a path that this session may not use, before anything reads it.

    `runner.checks.user_code` decides about code by path.
    """
    check_path(spec.model, "model.source")
    check_path(spec.data, "data.source")


def check_path(spec: ModelSpec | DataSpec, field: str) -> None:
    """Checks a model or data as `check_files` does; the error names `field`."""
    if not files_are_limited():
        return
    source = spec.source
    is_code = spec.is_user_code or source == SCRIPT_DATA
    if isinstance(spec, ModelSpec):
        is_code = is_code or spec.from_suite is not None or spec.script is not None
    if source.startswith(BUILTIN) or is_code:
        return
    is_file = isinstance(spec, DataSpec) and spec.is_file
    if (
        not is_file
        and HUB_NAME.fullmatch(source)
        and not any((folder / source).exists() for folder in (Path.cwd(), PROJECT_ROOT))
    ):
        # A name without owner may be a loader of `datasets` itself, which reads local files.
        rule = "must be owner/name for a hub data set where others are served"
        if isinstance(spec, DataSpec) and "/" not in source:
            raise InvalidSpec(field, source, rule)
        return
    try:
        path = Path(source).expanduser().resolve()
    except (OSError, RuntimeError, ValueError):
        path = None
    is_allowed = path and any(path.is_relative_to(folder) for folder in allowed_folders())
    if "://" in source or not is_allowed:
        raise InvalidSpec(
            field, source,
            "must lie in a folder that is open to others. Upload the file, or let the "
            "administrator of this dashboard add its folder to `files` of breakeven.toml",
        )  # fmt: skip


def show_folders() -> None:
    """Shows the folders whose files may be used, if they are limited."""
    listed = ", ".join(code(folder) for folder in allowed_folders()[1:])
    if listed:
        st.caption(f"You can use uploaded files and files in {listed}.")


def ask_upload() -> None:
    """Offers to upload a data file, which the form then uses."""
    with st.expander("Upload a data file", icon=":material/upload_file:"):
        show_folders()
        _ask("CSV, JSONL or Parquet", "upload", MAX_MEBIBYTES, DATA_FILE_SUFFIXES, keep,
             OWN_DATA, "own.data")  # fmt: skip


def scripts_may_run() -> bool:
    """Whether this session may upload scripts: it may act, it uses only this machine, and the
    operator lets uploaded scripts run."""
    folder = scripts().resolve()
    runs = any(
        folder.is_relative_to(Path(one).expanduser().resolve())
        for one in user_code.allowed_folders()
    )
    return runs and permissions.may_act() and not files_are_limited()


def let_scripts_run() -> None:
    """Lets uploaded scripts run like code in folders that the operator named, on condition that
    only the account that serves this dashboard can upload, that others are not served, and that the
    system lists the owner of each connection."""
    if sys.platform == "linux" and not doors.serves_others():
        listed = [*user_code.allowed_folders(), str(scripts())]
        os.environ[CODE_VARIABLE] = os.pathsep.join(dict.fromkeys(listed))


def ask_script_upload() -> None:
    """Offers to upload a script, if allowed."""
    if not scripts_may_run():
        return
    with st.expander("Upload a script", icon=":material/upload_file:"):
        st.caption("One file. A script that needs further files must be in a folder of "
                   f"{code(CODE_VARIABLE)}.")  # fmt: skip
        _ask("Python", "upload-script", MAX_SCRIPT_MEBIBYTES, (SCRIPT_SUFFIX,), keep_script,
             OWN_SCRIPT, "script.script")  # fmt: skip


def _ask(
    label: Markdown, key: str, mebibytes: int, suffixes: Iterable[str],
    keep: Callable[[str, bytes], Path], preset: Mapping[str, str], field: str,
) -> None:  # fmt: skip
    def use() -> None:
        """Writes the file's path into the form, so that no further click is needed."""
        given = st.session_state[key]
        with suppress(UploadRefused, permissions.NotAllowed, OSError):  # Shown below.
            if given is not None:
                st.session_state[field] = str(keep(given.name, given.getvalue()))
                st.session_state.update(preset)

    given = st.file_uploader(
        label, key=key, max_upload_size=mebibytes, on_change=use,
        type=[suffix.removeprefix(".") for suffix in suffixes],
    )  # fmt: skip
    if given is None:
        return
    try:
        path = keep(given.name, given.getvalue())
    except (UploadRefused, permissions.NotAllowed, OSError) as error:
        st.error(inert(error), icon=":material/error:")
        return
    st.success(f"Stored as {code(path)}", icon=":material/check_circle:")


def keep(name: str, content: bytes) -> Path:
    """Stores the file under a safe name; the same content is stored once.

    Raises `UploadRefused` if the file is too large or no data file, `NotAllowed` if this session
    may only look.
    """
    permissions.require_acting()
    suffix = next((one for one in sorted(DATA_FILE_SUFFIXES, key=len, reverse=True)
                   if name.lower().endswith(one)), None)  # fmt: skip
    if suffix is None:
        raise UploadRefused(f"{name!r} must end in one of {', '.join(DATA_FILE_SUFFIXES)}")
    if len(content) > MAX_MEBIBYTES * 2**20:
        raise UploadRefused(f"{name!r} must not be larger than {MAX_MEBIBYTES} MiB")
    return _write(uploads() / safe_name(name, suffix, content), content)


def keep_script(name: str, content: bytes) -> Path:
    """Stores a script in its own folder, because a script can import the files of its folder.

    Raises `UploadRefused` if the file is too large or no Python file, `NotAllowed` if this session
    may not upload code.
    """
    permissions.require_acting()
    if not scripts_may_run():
        raise permissions.NotAllowed(
            f"Scripts can be uploaded only on the machine itself, and only if {CODE_VARIABLE} "
            f"lists {scripts()}"
        )
    if not name.lower().endswith(SCRIPT_SUFFIX):
        raise UploadRefused(f"{name!r} must end in {SCRIPT_SUFFIX}")
    if len(content) > MAX_SCRIPT_MEBIBYTES * 2**20:
        raise UploadRefused(f"{name!r} must not be larger than {MAX_SCRIPT_MEBIBYTES} MiB")
    folder = safe_name(name, SCRIPT_SUFFIX, content).removesuffix(SCRIPT_SUFFIX)
    stem = plain_stem(name, SCRIPT_SUFFIX, otherwise="script").replace("-", "_")
    return _write(scripts() / folder / f"{stem}{SCRIPT_SUFFIX}", content)


def _write(path: Path, content: bytes) -> Path:
    """Writes the file if it does not exist; raises `UploadRefused` if all uploaded files would
    exceed the limit."""
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    folders = (uploads(), scripts())
    files = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    if sum(file.stat().st_size for file in files) + len(content) > MAX_TOTAL_BYTES:
        raise UploadRefused(
            f"Uploaded files must not take more than {MAX_TOTAL_BYTES // 2**30} GiB together. "
            f"The administrator can delete some in {' and '.join(map(str, folders))}"
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


def plain_stem(name: str, suffix: str, otherwise: str = "data") -> str:
    """A file's name without folders and suffix, with letters, digits and dashes only."""
    stem = Path(name.replace("\\", "/")).name
    stem = stem[: len(stem) - len(suffix)]
    return re.sub(r"[^A-Za-z0-9]+", "-", stem).strip("-")[:LONGEST_NAME] or otherwise
