"""What Linux control groups say of CPU time: a container's quota, and when it held us back."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_groups(mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> tuple[Path, ...]:
    """Folders of the groups that share out this process's CPU time, its own first.

    Both versions of control groups, cgroups(7). Empty where there are none to read. Inside a
    container the groups above its own are out of sight.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return ()
    found: list[Path] = []
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if controllers == "":
            hybrid = mount / "unified"
            base = hybrid if hybrid.is_dir() else mount
        elif "cpu" in controllers.split(","):
            base = mount / "cpu"
        else:
            continue
        inside = PurePosixPath(path)
        found += [base / group.relative_to("/") for group in (inside, *inside.parents)]
    return tuple(folder for folder in found if (folder / "cpu.stat").is_file())


def cpu_quota(groups: Sequence[Path]) -> float | None:
    """CPUs' worth of time that the strictest of the groups grants; None without a limit."""
    quotas = [quota for group in groups if (quota := _quota(group)) is not None]
    return min(quotas, default=None)


def _quota(group: Path) -> float | None:
    try:
        limit, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            limit = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    # No limit is written as "max", or as -1 in the older version.
    return int(limit) / int(period) if limit.isdigit() else None


def throttled_periods(groups: Sequence[Path]) -> int | None:
    """How often so far a quota was used up before its period was over; None where nobody counts."""
    counts = [count for group in groups if (count := _throttled(group)) is not None]
    return sum(counts) if counts else None


def _throttled(group: Path) -> int | None:
    try:
        for line in (group / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled":
                return int(value)
    except OSError:
        pass
    return None
