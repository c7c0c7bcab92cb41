"""Plans which queued experiments can start now, and where: a pure function of the requests.

An experiment holds devices and CPUs, which it shares with no other. The queue is processed in
order. A waiting request reserves all devices and CPUs that it could use. A later request starts
only on the others: so it fills gaps and delays no earlier request.

`keep_to` and `placed` apply a plan: they bind processes to their CPUs and set the devices of a run.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.place import write_cpus

CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The devices and CPUs of a machine."""

    cpus: frozenset[int]
    cpus_by_device: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """CPUs for the experiments on each device other than the CPU, by the device's name."""
    is_known: bool = False
    """Whether `cpus_by_device` has all devices. Otherwise any other device is assumed to exist, and
    a run on it fails with the reason if it does not."""

    def share(self, device: str) -> frozenset[int]:
        """The CPUs for a device; all CPUs for an unknown device, so that its run is alone."""
        return self.cpus_by_device.get(device, self.cpus)


@dataclass(frozen=True, kw_only=True)
class ResourceRequest:
    """The devices and CPUs that an experiment needs to start."""

    key: str
    """The experiment's id."""
    devices: tuple[str, ...]
    """Names as in specifications: `cuda:1`, or `cuda` for any free GPU."""
    cpus: frozenset[int] | None = None
    """The requested CPUs; None for the share of its devices."""
    exclusive: bool = False
    """Whether no other experiment may run meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The devices and CPUs that an experiment holds."""

    devices: tuple[str, ...]
    """Names with numbers, in the order of the specification."""
    cpus: frozenset[int]
    exclusive: bool = False


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """Requests that can start, and those that wait."""

    begins: Mapping[str, Place]
    """Places by the experiment's id."""
    waits: Mapping[str, tuple[str, ...]]
    """Ids of the running or earlier experiments that an experiment waits for, by its id."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A place on one of several machines."""

    node: str
    place: Place


def plan(
    queue: Sequence[ResourceRequest], held: Mapping[str, Place], machine: Machine
) -> StartPlan:
    """Plans the next starts. `queue`: waiting requests in order; `held`: running places by id."""
    begins: dict[str, Place] = {}
    waits: dict[str, tuple[str, ...]] = {}
    in_the_way = {key: _held(place, machine) for key, place in held.items()}
    for request in queue:
        taken = frozenset[str]().union(*in_the_way.values())
        alone = not (request.exclusive and in_the_way)
        place = next(
            (
                possible
                for possible in _possible(request, machine)
                if alone and not _held(possible, machine) & taken
            ),
            None,
        )
        if place is not None:
            begins[request.key] = place
            in_the_way[request.key] = _held(place, machine)
        else:
            needs = _could_use(request, machine)
            waits[request.key] = tuple(
                key for key, names in in_the_way.items() if names & needs or request.exclusive
            )
            in_the_way[request.key] = needs
    return StartPlan(begins=begins, waits=waits)


def plan_nodes(
    queue: Sequence[ResourceRequest],
    held: Mapping[str, Allocation],
    machines: Mapping[str, Machine],
) -> dict[str, Allocation]:
    """Plans the next starts on several machines: an experiment starts on the machine with the
    fewest others among those with room. A waiting request reserves its devices on each machine."""
    begins: dict[str, Allocation] = {}
    before: list[ResourceRequest] = []
    for request in queue:
        at_work = {**held, **begins}
        load = {
            node: sum(allocation.node == node for allocation in at_work.values())
            for node in machines
        }
        for node in sorted(machines, key=lambda name: load[name]):
            places = {
                key: allocation.place
                for key, allocation in at_work.items()
                if allocation.node == node
            }
            place = plan([*before, request], places, machines[node]).begins.get(request.key)
            if place is not None:
                begins[request.key] = Allocation(node=node, place=place)
                break
        else:
            before.append(request)
    return begins


def has_room(request: ResourceRequest, machine: Machine) -> bool:
    """Whether the experiment could run on this machine if it were empty."""
    return any(True for _ in _possible(request, machine))


def is_full(held: Mapping[str, Place], machine: Machine) -> bool:
    """Whether no further request can start: all CPUs are taken."""
    taken = frozenset[str]().union(*(_held(place, machine) for place in held.values()))
    return _cpu_names(machine.cpus) <= taken


def _possible(request: ResourceRequest, machine: Machine) -> Iterator[Place]:
    """Every place that a request could get on an empty machine."""
    for devices in _choices(request.devices, machine):
        cpus = _device_cpus(devices, machine) if request.cpus is None else request.cpus
        yield Place(devices=devices, cpus=cpus, exclusive=request.exclusive)


def _choices(requested: Sequence[str], machine: Machine) -> Iterator[tuple[str, ...]]:
    """Names with numbers for the requested devices, each device once."""
    kind = next((name for name in requested if _is_any(name)), None)
    if kind is None:
        yield tuple(requested)
        return
    named = [name for name in requested if not _is_any(name)]
    free = [name for name in _numbered_devices(kind, machine) if name not in named]
    for chosen in combinations(free, len(requested) - len(named)):
        numbers = iter(chosen)
        yield tuple(next(numbers) if _is_any(name) else name for name in requested)


def _is_any(name: str) -> bool:
    return name == "cuda"


def _numbered_devices(kind: str, machine: Machine) -> list[str]:
    """Devices of a kind, in order of their numbers; only number 0 if the devices are unknown."""
    unknown = [] if machine.is_known else [f"{kind}:0"]
    names = [name for name in machine.cpus_by_device if re.fullmatch(rf"{kind}:\d+", name)]
    return sorted(names, key=lambda name: int(name.partition(":")[2])) or unknown


def _device_cpus(devices: Sequence[str], machine: Machine) -> frozenset[int]:
    return frozenset[int]().union(
        *(machine.cpus if _is_cpu(name) else machine.share(name) for name in devices)
    )


def _is_cpu(name: str) -> bool:
    return name.partition(":")[0] == CPU


def _cpu_names(cpus: frozenset[int]) -> frozenset[str]:
    return frozenset(f"{CPU} {number}" for number in cpus)


def _held(place: Place, machine: Machine) -> frozenset[str]:
    """All devices and single CPUs that a placement reserves."""
    devices = frozenset(name for name in place.devices if not _is_cpu(name))
    if place.exclusive:
        return devices | frozenset(machine.cpus_by_device) | _cpu_names(machine.cpus | place.cpus)
    return devices | _cpu_names(place.cpus)


def _could_use(request: ResourceRequest, machine: Machine) -> frozenset[str]:
    """All devices and CPUs of all possible places of a request."""
    named = frozenset(name for name in request.devices if not _is_any(name) and not _is_cpu(name))
    kinds = {name for name in request.devices if _is_any(name)}
    devices = named.union(*(_numbered_devices(kind, machine) for kind in kinds))
    cpus = request.cpus
    if cpus is None:
        cpus = _device_cpus([*devices, *filter(_is_cpu, request.devices)], machine)
    return _held(Place(devices=tuple(devices), cpus=cpus, exclusive=request.exclusive), machine)


DEVICES_VARIABLE = "BREAKEVEN_DEVICES"
"""Environment variable with the devices of a run, as "cuda:0,cuda:1"."""


def keep_to(place: Place, machine: Machine) -> str | None:
    """Binds the calling thread, and all processes that it starts later, to the CPUs of a place, so
    that experiments disturb each other less. Returns a sentence if this is impossible.

    Does nothing if the place has all CPUs, or the system cannot bind threads (macOS).
    """
    if place.cpus == machine.cpus or not hasattr(os, "sched_setaffinity"):
        return None
    if not place.cpus <= machine.cpus:
        return (
            f"cpus = {write_cpus(place.cpus)}: this machine has CPUs {write_cpus(machine.cpus)}; "
            "name some of these"
        )
    os.sched_setaffinity(0, place.cpus)
    return None


def given_devices(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The devices from the supervisor; None for a process that was started by hand."""
    given = environment.get(DEVICES_VARIABLE)
    return tuple(given.split(",")) if given else None


def placed(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The run with its given devices; if started by hand, `cuda` is replaced by `cuda:0`, ..."""
    devices = given_devices(environment) or tuple(
        f"{name}:{place}" if name == "cuda" else name
        for place, name in enumerate(spec.experiment.devices)
    )
    if devices == spec.experiment.devices:
        return spec
    return replace(spec, experiment=replace(spec.experiment, devices=devices))
