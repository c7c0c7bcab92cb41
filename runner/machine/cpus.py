"""The CPUs of this machine: the allowed ones, their cores and NUMA nodes, and the quota of control
groups. Also the memory."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from breakeven.runner.specs.place import parse_cpus


@dataclass(frozen=True, kw_only=True)
class CpuAllowance:
    """The CPUs of the machine that this process may use."""

    in_machine: int
    cpus: frozenset[int]
    """Numbers of the CPUs that the scheduler may put this process on."""
    quota: float | None
    """CPU time per second that its control group grants; None without a limit."""

    @property
    def usable(self) -> int:
        """Whole CPUs that can be kept busy, at least 1."""
        most = len(self.cpus)
        return most if self.quota is None else max(1, min(most, int(self.quota)))

    @property
    def default_threads(self) -> int:
        """Half of the usable CPUs, at least 1.

        Two logical CPUs usually share a core, and all threads of an operation wait for the slowest,
        which another process may delay (docs/decisions.md).
        """
        return max(1, self.usable // 2)


def cpu_allowance() -> CpuAllowance:
    """The CPUs of this process; all of the machine, without a quota, if unknown (macOS)."""
    in_machine = os.cpu_count() or 1
    try:
        cpus = frozenset(os.sched_getaffinity(0))
    except AttributeError:
        cpus = frozenset(range(in_machine))
    return CpuAllowance(in_machine=in_machine, cpus=cpus, quota=cpu_quota(cpu_groups()))


def memory_bytes() -> int | None:
    """Memory of this machine in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def explain_threads(specified: int | None, allowance: CpuAllowance) -> str:
    """Why a run has its number of threads, in words."""
    if specified is not None:
        return f"cpu_threads = {specified} in the specification"
    limits = [f"{allowance.in_machine} in the machine"]
    if len(allowance.cpus) < allowance.in_machine:
        limits.append(f"{len(allowance.cpus)} by affinity")
    if allowance.quota is not None:
        limits.append(f"a quota of {allowance.quota:g}")
    return (
        f"half of the CPUs that the run may use, at least 1: {allowance.usable} "
        f"({', '.join(limits)})"
    )


MOUNT = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def cpu_groups(mount: Path = MOUNT, membership: Path = MEMBERSHIP) -> tuple[Path, ...]:
    """Folders of the control groups that limit this process's CPU time, its own first.

    Supports both versions, cgroups(7). Empty if none can be read. In a container, the groups above
    its own are not visible.
    """
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return ()
    folders: list[Path] = []
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
        folders += [base / group.relative_to("/") for group in (inside, *inside.parents)]
    return tuple(folder for folder in folders if (folder / "cpu.stat").is_file())


def cpu_quota(groups: Sequence[Path]) -> float | None:
    """CPU time per second that the strictest group grants; None without a limit."""
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
    # "max", or -1 in the older version, means no limit.
    return int(limit) / int(period) if limit.isdigit() else None


def throttled_periods(groups: Sequence[Path]) -> int | None:
    """Periods so far in which a quota was used up early; None without a counter."""
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


SYSTEM = Path("/sys/devices/system")


def cores(cpus: Collection[int], system: Path = SYSTEM) -> list[frozenset[int]]:
    """Groups CPUs by the core that they share, in order; each CPU alone if the cores are
    unknown."""
    siblings = {
        number: _listed(system / f"cpu/cpu{number}/topology/thread_siblings_list")
        for number in cpus
    }
    groups = {frozenset(cpus) & (siblings[number] or {number}) for number in cpus}
    return sorted(groups, key=min)


def numa_nodes(system: Path = SYSTEM) -> dict[int, frozenset[int]]:
    """CPUs of each NUMA node; empty if unknown."""
    nodes = {}
    for folder in system.glob("node/node*"):
        cpus = _listed(folder / "cpulist")
        if cpus:
            nodes[int(folder.name.removeprefix("node"))] = cpus
    return nodes


def _listed(file: Path) -> frozenset[int]:
    try:
        return parse_cpus(file.read_text())
    except (OSError, ValueError):
        return frozenset()


def equal_parts(cores: Sequence[frozenset[int]], count: int) -> list[frozenset[int]] | None:
    """The CPUs of so many parts with equal numbers of whole cores; None with too few cores."""
    size = len(cores) // count
    parts = (cores[number * size : (number + 1) * size] for number in range(count))
    return [frozenset[int]().union(*part) for part in parts] if size else None


def cpus_by_device(
    devices: Mapping[str, int | None],
    cores: Sequence[frozenset[int]],
    nodes: Mapping[int, frozenset[int]],
) -> dict[str, frozenset[int]]:
    """Different CPUs for each device: equal numbers of whole cores of its NUMA node. `devices`: the
    node of each, None if unknown. A single device gets all CPUs. So does each device if a node has
    fewer cores than devices.
    """
    every = frozenset[int]().union(*cores)
    if len(devices) < 2:
        return dict.fromkeys(devices, every)
    cpus: dict[int | None, frozenset[int]] = {None: every}
    cpus.update(nodes.items())
    node_by_device = {
        name: node if cpus.get(node, frozenset()) & every else None
        for name, node in devices.items()
    }
    if None in node_by_device.values():  # The nearest memory is unknown.
        node_by_device = dict.fromkeys(devices)
    chosen: dict[str, frozenset[int]] = {}
    for node in set(node_by_device.values()):
        local = [name for name in devices if node_by_device[name] == node]
        parts = equal_parts([core for core in cores if core <= cpus[node]], len(local))
        if parts is None:
            return dict.fromkeys(devices, every)
        chosen |= dict(zip(local, parts, strict=True))
    return chosen
