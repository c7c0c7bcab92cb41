"""Which CPUs this process may use, how many threads a run gets by default, and the memory."""

import os
from dataclasses import dataclass

from breakeven.runner.machine.cgroups import cpu_groups, cpu_quota


@dataclass(frozen=True, kw_only=True)
class CpuAllowance:
    """What this process may use of the machine's CPUs."""

    in_machine: int
    cpus: frozenset[int]
    """Numbers of the CPUs that the scheduler may put this process on."""
    quota: float | None
    """CPUs' worth of time that its control group grants; None without a limit."""

    @property
    def usable(self) -> int:
        """Whole CPUs that can be kept busy, at least 1."""
        most = len(self.cpus)
        return most if self.quota is None else max(1, min(most, int(self.quota)))

    @property
    def default_threads(self) -> int:
        """Half of what is usable, at least 1.

        Two logical CPUs are mostly one core, and threads that wait for each other at the end of
        every operation all wait for the one that a neighbour holds up
        (docs/decisions/half-the-usable-cpus.md).
        """
        return max(1, self.usable // 2)


def cpu_allowance() -> CpuAllowance:
    """Where the system does not tell (macOS), all CPUs of the machine, without a quota."""
    in_machine = os.cpu_count() or 1
    try:
        cpus = frozenset(os.sched_getaffinity(0))
    except AttributeError:
        cpus = frozenset(range(in_machine))
    return CpuAllowance(in_machine=in_machine, cpus=cpus, quota=cpu_quota(cpu_groups()))


def memory_bytes() -> int | None:
    """Memory of this machine; None where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def explain_threads(asked: int | None, allowance: CpuAllowance) -> str:
    """Why a run computes with as many threads as it does."""
    if asked is not None:
        return f"cpu_threads = {asked} in the specification"
    limits = [f"{allowance.in_machine} in the machine"]
    if len(allowance.cpus) < allowance.in_machine:
        limits.append(f"{len(allowance.cpus)} by affinity")
    if allowance.quota is not None:
        limits.append(f"a quota of {allowance.quota:g}")
    return (
        f"half of the CPUs that the run may use, at least 1: {allowance.usable} "
        f"({', '.join(limits)})"
    )
