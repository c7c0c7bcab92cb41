"""The data folder: its paths, its run folders, and its default path."""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path

from breakeven.runner.project import IS_CHECKOUT, PROJECT_ROOT
from breakeven.runner.protocol.run_dir import RunDir

DATA_VARIABLE = "BREAKEVEN_DATA"
DEFAULT_TEXT = (
    f"(default: ${DATA_VARIABLE}, else data/ of a checkout, else ~/.local/share/breakeven)"
)


def default_data_folder() -> Path:
    """The folder that `BREAKEVEN_DATA` names, else `data/` of a checkout, else the user's folder
    (XDG Base Directory Specification)."""
    if named := os.environ.get(DATA_VARIABLE):
        return Path(named)
    if IS_CHECKOUT:
        return PROJECT_ROOT / "data"
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "breakeven"


class DataDir:
    """The data folder: all run folders, the database, locks, and shared files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).expanduser().resolve()
        self.runs = self.path / "runs"
        self.database_file = self.path / "breakeven.duckdb"
        self.database_lock = self.path / "breakeven.duckdb.lock"
        self.supervisor_lock = self.path / "supervisor.lock"
        self.stuck_file = self.path / "stuck.json"
        self.supervisor_log = self.path / "supervisor.log"
        self.logs = self.path / "logs"
        self.capabilities_file = self.path / "capabilities.json"
        self.library_lock = self.path / "library.lock"
        self.trash = self.path / "trash"
        self.queue_file = self.path / "queue.json"
        self.families = self.path / "families"
        self.environments = self.path / "environments"
        self.token_file = self.path / "token"

    @property
    def option(self) -> str:
        """What a command that we print needs to find this folder: ` --data-folder=PATH`, or nothing
        if commands in the same environment find it by themselves."""
        is_default = self.path == default_data_folder().expanduser().resolve()
        return "" if is_default else f" --data-folder={shlex.quote(str(self.path))}"

    def make(self) -> None:
        """Creates a missing folder for this account only: other accounts of the machine could read
        logs and data there, and take its locks. Raises `OSError`."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def run_dir(self, run_id: str) -> RunDir:
        return RunDir(self.runs / run_id)

    def run_dirs(self) -> Iterator[RunDir]:
        """All folders that may be run folders, oldest experiment first; content is not checked."""
        return run_dirs(self.runs)

    def unrecorded_runs(self) -> list[RunDir]:
        """Runs without an exit record; no file is opened or checked."""
        runs = map(self.run_dir, run_names(self.runs))
        return [run for run in runs if not run.is_recorded]

    def open_experiments(self) -> set[str]:
        """Ids of the experiments with unrecorded runs."""
        return {run.run_id.partition(".")[0] for run in self.unrecorded_runs()}


def run_dirs(parent: Path) -> Iterator[RunDir]:
    """All folders in `parent` that may be run folders, by name; content is not checked."""
    for name in run_names(parent):
        yield RunDir(parent / name)


def run_names(parent: Path) -> list[str]:
    """Names of all folders in `parent` that may be run folders, in order."""
    try:
        with os.scandir(parent) as entries:
            return sorted(entry.name for entry in entries if _may_be_run_folder(entry))
    except OSError:  # The folder is missing or unreadable.
        return []


def _may_be_run_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry may be a run folder. A broken link may have been one: it is reported, not
    skipped. In an installed package, `__pycache__` lies beside the example scripts."""
    try:
        is_folder = entry.is_dir()
    except OSError:  # a link that points to itself
        is_folder = True
    return (is_folder or entry.is_symlink()) and not entry.name.startswith((".", "__pycache__"))
