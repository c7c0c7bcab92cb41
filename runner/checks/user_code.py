"""Python files of one's own: which may run is up to whoever starts the supervisor.

A specification is data and may come from anybody; `path.py:name` in it is code. A run executes it
only from the folders that the environment of its supervisor lists in `BREAKEVEN_CODE`.
"""

import os
from pathlib import Path

from breakeven.runner.errors import CodeNotAllowed
from breakeven.runner.specs.workload import USER_CODE

CODE_VARIABLE = "BREAKEVEN_CODE"
"""Environment variable with the folders whose Python files may run, separated like `PATH`."""


def locate(source: str) -> tuple[Path, str]:
    """The file, resolved, and the name behind the colon of `path.py:name`, empty for a script.

    Raises `CodeNotAllowed` unless the file lies in a folder that `BREAKEVEN_CODE` lists.
    """
    path, _, name = source.rpartition(":") if USER_CODE.fullmatch(source) else (source, "", "")
    return allowed(source, Path(path)), name


def allowed(source: str, path: Path) -> Path:
    """The path, resolved; raises `CodeNotAllowed` unless it lies in a folder that `BREAKEVEN_CODE`
    lists. `source` is what the error calls it."""
    file = path.expanduser().resolve()
    folders = [Path(entry).expanduser().resolve() for entry in allowed_folders()]
    if any(file.is_relative_to(folder) for folder in folders):
        return file
    listed = os.pathsep.join(map(str, folders)) or "empty"
    wanted = file if file.is_dir() else file.parent
    raise CodeNotAllowed(
        f"{source!r}: {file} may not run here. Start the supervisor (or the dashboard) with "
        f"{CODE_VARIABLE}={wanted}, which is {listed} now, if you trust what is there"
    )


def allowed_folders() -> list[str]:
    """The entries of `BREAKEVEN_CODE`."""
    return [entry for entry in os.environ.get(CODE_VARIABLE, "").split(os.pathsep) if entry]
