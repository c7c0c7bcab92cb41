"""How the CPUs of this machine lie together, and which of them belong to which device."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from breakeven.runner.specs.place import parse_cpus

SYSTEM = Path("/sys/devices/system")


def cores(cpus: Collection[int], system: Path = SYSTEM) -> list[frozenset[int]]:
    """These CPUs by the core that they share, in order; each its own where the system does not
    tell."""
    siblings = {number: _listed(system / f"cpu/cpu{number}/topology/thread_siblings_list")
                for number in cpus}  # fmt: skip
    found = {frozenset(cpus) & (siblings[number] or {number}) for number in cpus}
    return sorted(found, key=min)


def numa_nodes(system: Path = SYSTEM) -> dict[int, frozenset[int]]:
    """CPUs of each NUMA node; empty where the system does not tell."""
    found = {}
    for folder in system.glob("node/node*"):
        cpus = _listed(folder / "cpulist")
        if cpus:
            found[int(folder.name.removeprefix("node"))] = cpus
    return found


def _listed(file: Path) -> frozenset[int]:
    try:
        return parse_cpus(file.read_text())
    except (OSError, ValueError):
        return frozenset()


def shares(
    devices: Mapping[str, int | None],
    cores: Sequence[frozenset[int]],
    nodes: Mapping[int, frozenset[int]],
) -> dict[str, frozenset[int]]:
    """CPUs for each device, none for two: whole cores of the NUMA node that it sits at, in equal
    parts.

    `devices`: the node of each, None where unknown. All CPUs for a device that has no other beside
    it; and for each of them where a node has fewer cores than devices.
    """
    every = frozenset[int]().union(*cores)
    if len(devices) < 2:
        return dict.fromkeys(devices, every)
    cpus: dict[int | None, frozenset[int]] = {None: every}
    cpus.update(nodes.items())
    at = {name: node if cpus.get(node, frozenset()) & every else None
          for name, node in devices.items()}  # fmt: skip
    if None in at.values():  # Then nobody knows whose memory is near which.
        at = dict.fromkeys(devices)
    found = {}
    for node in set(at.values()):
        mine = [name for name in devices if at[name] == node]
        near = [core for core in cores if core <= cpus[node]]
        size = len(near) // len(mine)
        if not size:
            return dict.fromkeys(devices, every)
        for place, name in enumerate(mine):
            found[name] = frozenset[int]().union(*near[place * size : (place + 1) * size])
    return found
