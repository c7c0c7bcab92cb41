"""Makes the checks of the doctor: all of them, or those that disturb no training."""

from collections.abc import Callable, Iterable
from functools import partial

from breakeven.runner.doctor.data_folder_checks import check_disk, check_run_folders
from breakeven.runner.doctor.health_finding import Finding, Health
from breakeven.runner.doctor.machine_checks import (
    check_devices,
    check_notifications,
    check_packages,
    check_python,
    required_packages,
)
from breakeven.runner.doctor.process_checks import check_processes
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.texts import printable


def examine(data_dir: DataDir, *, notify: bool = False) -> list[Finding]:
    """Runs all checks; takes as long as torch needs to start and compile. `notify`: whether to send
    a test notification."""
    return [
        *_findings_of("Python", lambda: [check_python()]),
        *_findings_of("Packages", lambda: [check_packages(*required_packages())]),
        *_findings_of("Notifications", lambda: [check_notifications(notify=notify)]),
        *_findings_of("Devices", check_devices),
        *quick_findings(data_dir),
        *_findings_of("Run folders", partial(check_run_folders, data_dir)),
    ]


def quick_findings(data_dir: DataDir) -> list[Finding]:
    """Quick findings that do not disturb a training: no compiler, no torch, no journal."""
    return [
        *_findings_of("Disk", partial(check_disk, data_dir)),
        *_findings_of("Processes", partial(check_processes, data_dir)),
    ]


def _findings_of(subject: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check up to its first error, and that error."""
    findings: list[Finding] = []
    try:
        findings.extend(check())
    except Exception as error:  # A check that fails must not hide the findings of others.
        evidence = f"this check itself failed: {type(error).__name__}: {printable(error)}"
        findings.append(Finding(subject=subject, health=Health.UNKNOWN, evidence=evidence))
    return findings
