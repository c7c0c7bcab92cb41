"""Which experiments of the queue may begin now, and where: a pure function of the requests.

An experiment holds devices and CPUs, and no two share any. The queue is processed in order. A
waiting request reserves all devices and CPUs that it could begin on; a later one begins only on
those that no earlier one could use: it fills gaps, and delays no earlier request.

`keep_to` and `placed` put an experiment at its place: processes keep to CPUs of their own and learn
their devices.
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
    """What there is to be held."""

    cpus: frozenset[int]
    shares: Mapping[str, frozenset[int]] = field(default_factory=dict)
    """CPUs of each device but the CPUs themselves, by its name: those of its experiments."""
    is_known: bool = False
    """Whether these are all devices that there are. Else one that is not among them is believed to
    be there: what asks for it then fails with the reason."""

    def share(self, device: str) -> frozenset[int]:
        """All CPUs for an unknown device: a run on it then runs alone."""
        return self.shares.get(device, self.cpus)


@dataclass(frozen=True, kw_only=True)
class ResourceRequest:
    """What an experiment needs in order to begin."""

    key: str
    """The experiment's id."""
    devices: tuple[str, ...]
    """As specifications name them: `cuda:1`, or `cuda` for any one that is free."""
    cpus: frozenset[int] | None = None
    """Those that it names; None for the share of its devices."""
    exclusive: bool = False
    """Whether nothing else may run meanwhile."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """What an experiment holds."""

    devices: tuple[str, ...]
    """In the order of the specification, each with its number."""
    cpus: frozenset[int]
    exclusive: bool = False


@dataclass(frozen=True, kw_only=True)
class StartPlan:
    """What may begin, and why the others may not."""

    begins: Mapping[str, Place]
    """By the experiment's id."""
    waits: Mapping[str, tuple[str, ...]]
    """Ids of those that hold, or were there before for, what an experiment waits for."""


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """A place on one of several machines."""

    node: str
    place: Place


def plan(
    queue: Sequence[ResourceRequest], held: Mapping[str, Place], machine: Machine
) -> StartPlan:
    """`queue`: what waits, first to last; `held`: what runs, by its id."""
    begins: dict[str, Place] = {}
    waits: dict[str, tuple[str, ...]] = {}
    in_the_way = {key: _held(place, machine) for key, place in held.items()}
    for request in queue:
        taken = frozenset[str]().union(*in_the_way.values())
        alone = not (request.exclusive and in_the_way)
        place = next((one for one in _possible(request, machine)
                      if alone and not _held(one, machine) & taken), None)  # fmt: skip
        if place is not None:
            begins[request.key] = place
            in_the_way[request.key] = _held(place, machine)
        else:
            needs = _could_use(request, machine)
            waits[request.key] = tuple(key for key, them in in_the_way.items()
                                    if them & needs or request.exclusive)  # fmt: skip
            in_the_way[request.key] = needs
    return StartPlan(begins=begins, waits=waits)


def plan_nodes(
    queue: Sequence[ResourceRequest],
    held: Mapping[str, Allocation],
    machines: Mapping[str, Machine],
) -> dict[str, Allocation]:
    """What may begin where, on several machines: each experiment on one of them, the one with the
    fewest others that has room. What waits keeps free, on each, all that it could begin on."""
    begins: dict[str, Allocation] = {}
    before: list[ResourceRequest] = []
    for request in queue:
        at_work = {**held, **begins}
        load = {
            node: sum(allocation.node == node for allocation in at_work.values())
            for node in machines
        }
        for node in sorted(machines, key=lambda name: load[name]):
            here = {
                key: allocation.place
                for key, allocation in at_work.items()
                if allocation.node == node
            }
            place = plan([*before, request], here, machines[node]).begins.get(request.key)
            if place is not None:
                begins[request.key] = Allocation(node=node, place=place)
                break
        else:
            before.append(request)
    return begins


def split(
    place: Place, machine: Machine, cores: Sequence[frozenset[int]], count: int
) -> list[Place]:
    """A place in equal parts, for the runs that are spread over its devices: each has the CPUs
    near its device, else as many whole cores as the others; all of them where there are fewer.

    `cores`: the CPUs of the place by the core that they share. Every part names all devices, of
    which a run knows its own by its number.
    """
    near = [machine.shares.get(name, frozenset()) for name in place.devices]
    if len(frozenset[int]().union(*near)) == sum(map(len, near)) and all(
        cpus and cpus <= place.cpus for cpus in near
    ):
        return [replace(place, cpus=cpus) for cpus in near]
    size = len(cores) // count
    if not size:
        return [place] * count
    parts = (cores[number * size : (number + 1) * size] for number in range(count))
    return [replace(place, cpus=frozenset[int]().union(*part)) for part in parts]


def has_room(request: ResourceRequest, machine: Machine) -> bool:
    """Whether there are devices here that the experiment could run on if nothing else did."""
    return any(True for _ in _possible(request, machine))


def is_full(held: Mapping[str, Place], machine: Machine) -> bool:
    """Whether nothing more can begin, whatever it asks for."""
    taken = frozenset[str]().union(*(_held(place, machine) for place in held.values()))
    return _cpu_names(machine.cpus) <= taken


def _possible(request: ResourceRequest, machine: Machine) -> Iterator[Place]:
    """Every place that the experiment could have on an empty machine."""
    for devices in _choices(request.devices, machine):
        cpus = _cpus_of(devices, machine) if request.cpus is None else request.cpus
        yield Place(devices=devices, cpus=cpus, exclusive=request.exclusive)


def _choices(requested: Sequence[str], machine: Machine) -> Iterator[tuple[str, ...]]:
    """Names with numbers for the requested devices, each device once."""
    kind = next((name for name in requested if _is_any(name)), None)
    if kind is None:
        yield tuple(requested)
        return
    named = [name for name in requested if not _is_any(name)]
    free = [name for name in _of_kind(kind, machine) if name not in named]
    for chosen in combinations(free, len(requested) - len(named)):
        numbers = iter(chosen)
        yield tuple(next(numbers) if _is_any(name) else name for name in requested)


def _is_any(name: str) -> bool:
    return name == "cuda"


def _of_kind(kind: str, machine: Machine) -> list[str]:
    """Devices of a kind by their number; the first, where the devices are unknown."""
    unknown = [] if machine.is_known else [f"{kind}:0"]
    found = [name for name in machine.shares if re.fullmatch(rf"{kind}:\d+", name)]
    return sorted(found, key=lambda name: int(name.partition(":")[2])) or unknown


def _cpus_of(devices: Sequence[str], machine: Machine) -> frozenset[int]:
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
        return devices | frozenset(machine.shares) | _cpu_names(machine.cpus | place.cpus)
    return devices | _cpu_names(place.cpus)


def _could_use(request: ResourceRequest, machine: Machine) -> frozenset[str]:
    """All that any of its places would hold."""
    named = frozenset(name for name in request.devices if not _is_any(name) and not _is_cpu(name))
    kinds = {name for name in request.devices if _is_any(name)}
    devices = named.union(*(_of_kind(kind, machine) for kind in kinds))
    cpus = request.cpus
    if cpus is None:
        cpus = _cpus_of([*devices, *filter(_is_cpu, request.devices)], machine)
    return _held(Place(devices=tuple(devices), cpus=cpus, exclusive=request.exclusive), machine)


DEVICES_VARIABLE = "BREAKEVEN_DEVICES"
"""Environment variable that tells a run where it was placed, as "cuda:0,cuda:1"."""


def keep_to(place: Place, machine: Machine) -> str | None:
    """Keeps the calling thread, and every process that it starts from now on, to the CPUs of a
    place, so that neighbours disturb each other less; why that cannot be, in a sentence.

    Nothing is done where a place has all CPUs, or the system knows no such thing (macOS).
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
    """Where the supervisor placed this process; None for one that was started by hand."""
    given = environment.get(DEVICES_VARIABLE)
    return tuple(given.split(",")) if given else None


def placed(spec: RunSpec, environment: Mapping[str, str]) -> RunSpec:
    """The run on the devices that it was given; by hand, where any one will do, on the first."""
    devices = given_devices(environment) or tuple(
        f"{name}:{place}" if name == "cuda" else name
        for place, name in enumerate(spec.experiment.devices)
    )
    if devices == spec.experiment.devices:
        return spec
    return replace(spec, experiment=replace(spec.experiment, devices=devices))
