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

    num_in_machine: int
    cpus: frozenset[int]
    """Numbers of the CPUs that the scheduler may put this process on."""
    quota: float | None
    """CPU time per second that its control group grants; None without a limit."""

    @property
    def usable(self) -> int:
        """Whole CPUs that can be kept busy, at least 1."""
        num_allowed = len(self.cpus)
        return num_allowed if self.quota is None else max(1, min(num_allowed, int(self.quota)))

    @property
    def default_threads(self) -> int:
        """Half of the usable CPUs, at least 1.

        Two logical CPUs usually share a core, and all threads of an operation wait for the slowest,
        which another process may delay (docs/decisions.md).
        """
        return max(1, self.usable // 2)


def cpu_allowance() -> CpuAllowance:
    """The CPUs of this process; all of the machine, without a quota, if unknown (macOS)."""
    num_in_machine = os.cpu_count() or 1
    try:
        cpus = frozenset(os.sched_getaffinity(0))
    except AttributeError:
        cpus = frozenset(range(num_in_machine))
    return CpuAllowance(num_in_machine=num_in_machine, cpus=cpus, quota=cpu_quota(control_groups()))


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
    limits = [f"{allowance.num_in_machine} in the machine"]
    if len(allowance.cpus) < allowance.num_in_machine:
        limits.append(f"{len(allowance.cpus)} by affinity")
    if allowance.quota is not None:
        limits.append(f"a quota of {allowance.quota:g}")
    return (
        f"half of the CPUs that the run may use, at least 1: {allowance.usable} "
        f"({', '.join(limits)})"
    )


CGROUP_MOUNT = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def control_groups(mount: Path = CGROUP_MOUNT, membership: Path = OWN_CGROUPS) -> tuple[Path, ...]:
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
            # With both versions at once, systemd mounts the newer one here.
            both_versions = mount / "unified"
            base = both_versions if both_versions.is_dir() else mount
        elif "cpu" in controllers.split(","):
            base = mount / "cpu"
        else:
            continue
        own_group = PurePosixPath(path)
        folders += [base / group.relative_to("/") for group in (own_group, *own_group.parents)]
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
    """Periods of the scheduler so far in which a quota was used up early, summed over the groups;
    None without a counter."""
    counts = [count for group in groups if (count := _num_throttled(group)) is not None]
    return sum(counts) if counts else None


def _num_throttled(group: Path) -> int | None:
    try:
        for line in (group / "cpu.stat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "nr_throttled":
                return int(value)
    except OSError:
        pass
    return None


SYSTEM = Path("/sys/devices/system")


def cpus_by_core(cpus: Collection[int], system: Path = SYSTEM) -> list[frozenset[int]]:
    """The CPUs of each core, cores by their lowest CPU; each CPU alone if the cores are unknown."""
    siblings = {
        number: _cpus_in(system / f"cpu/cpu{number}/topology/thread_siblings_list")
        for number in cpus
    }
    by_core = {frozenset(cpus) & (siblings[number] or {number}) for number in cpus}
    return sorted(by_core, key=min)


def numa_nodes(system: Path = SYSTEM) -> dict[int, frozenset[int]]:
    """CPUs of each NUMA node; empty if unknown."""
    nodes = {}
    for folder in system.glob("node/node*"):
        cpus = _cpus_in(folder / "cpulist")
        if cpus:
            nodes[int(folder.name.removeprefix("node"))] = cpus
    return nodes


def _cpus_in(file: Path) -> frozenset[int]:
    try:
        return parse_cpus(file.read_text())
    except (OSError, ValueError):
        return frozenset()


def equal_parts(cores: Sequence[frozenset[int]], count: int) -> list[frozenset[int]] | None:
    """Divides the cores into `count` parts of equal size, and returns the CPUs of each; leftover
    cores belong to no part. None with too few cores."""
    size = len(cores) // count
    parts = (cores[number * size : (number + 1) * size] for number in range(count))
    return [frozenset[int]().union(*part) for part in parts] if size else None


def cpus_by_device(
    node_of_device: Mapping[str, int | None],
    cores: Sequence[frozenset[int]],
    nodes: Mapping[int, frozenset[int]],
) -> dict[str, frozenset[int]]:
    """Divides the cores of each NUMA node equally among the devices of the node, which is None if
    unknown.

    Exceptions: if the node of one device is unknown or has no usable CPU, all cores are divided
    among all devices. If a node has fewer cores than devices, each device has all CPUs, as has a
    single device.
    """
    all_cpus = frozenset[int]().union(*cores)
    if len(node_of_device) < 2:
        return dict.fromkeys(node_of_device, all_cpus)
    cpus_by_node: dict[int | None, frozenset[int]] = {None: all_cpus}
    cpus_by_node.update(nodes.items())
    used_nodes = {
        name: node if cpus_by_node.get(node, frozenset()) & all_cpus else None
        for name, node in node_of_device.items()
    }
    if None in used_nodes.values():  # One device's node is unknown: divide all cores instead.
        used_nodes = dict.fromkeys(node_of_device)
    chosen: dict[str, frozenset[int]] = {}
    for node in set(used_nodes.values()):
        devices_of_node = [name for name in node_of_device if used_nodes[name] == node]
        cores_of_node = [core for core in cores if core <= cpus_by_node[node]]
        parts = equal_parts(cores_of_node, len(devices_of_node))
        if parts is None:
            return dict.fromkeys(node_of_device, all_cpus)
        chosen |= dict(zip(devices_of_node, parts, strict=True))
    return chosen
