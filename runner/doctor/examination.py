"""The whole examination: every check, none of which can keep another from being made."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from breakeven.runner.doctor.database import check_database
from breakeven.runner.doctor.devices import check_devices
from breakeven.runner.doctor.disk import check_disk
from breakeven.runner.doctor.findings import Finding, Health
from breakeven.runner.doctor.folders import check_folders
from breakeven.runner.doctor.processes import check_processes
from breakeven.runner.doctor.software import (
    check_compiler,
    check_notifications,
    check_python,
    check_versions,
)
from breakeven.runner.folders.data_dir import DataDir
from breakeven.runner.texts import printable

Check = Callable[[], Iterable[Finding]]


def examine(data_dir: DataDir, *, notify: bool = False) -> list[Finding]:
    """Everything; takes as long as torch needs to start and to compile. `notify`: whether a test
    goes to the addresses for notifications."""
    return [*_made("Installation", _software),
            *_made("Notifications", lambda: [check_notifications(notify=notify)]),
            *_made("Devices", check_devices),
            *look(data_dir),
            *_made("Run folders", partial(check_folders, data_dir)),
            *_made("Database", partial(check_database, data_dir))]  # fmt: skip


def look(data_dir: DataDir) -> list[Finding]:
    """What can be told at once, beside a training: no compiler, no torch, no journal."""
    return [*_made("Disk", partial(check_disk, data_dir)),
            *_made("Processes", partial(check_processes, data_dir))]  # fmt: skip


def _software() -> Iterator[Finding]:
    yield check_python()
    yield check_versions()
    yield check_compiler()


def _made(subject: str, check: Check) -> list[Finding]:
    """The findings of a check, as far as it comes."""
    found: list[Finding] = []
    try:
        found.extend(check())
    except Exception as error:  # one check that fails must not hide what others find
        evidence = f"this check failed itself: {type(error).__name__}: {printable(error)}"
        found.append(Finding(subject=subject, health=Health.UNKNOWN, evidence=evidence))
    return found
