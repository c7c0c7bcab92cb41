"""Where runs compute: devices, machines and CPUs."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.fields import Bounds, Prompt, Spec


def parse_cpus(text: str) -> frozenset[int]:
    """The numbers in a list such as `0-3,8`, as the kernel writes it (cpuset(7)); raises
    `ValueError` for anything else."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None:
            raise ValueError(f"{part!r} must be the number of a CPU or a range, such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} must begin with the lower number")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def write_cpus(cpus: Collection[int]) -> str:
    """The list that `parse_cpus` reads."""
    parts = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ",".join(parts)


def devices_of_ranks(device: str, ranks: int) -> tuple[str, ...]:
    """A device for each of several processes, from the first one: `cuda:1` also means `cuda:2`."""
    kind, colon, number = device.partition(":")
    if not number.isdigit():
        return (device,) * ranks
    return tuple(f"{kind}{colon}{int(number) + rank}" for rank in range(ranks))


Parallel = Literal["ddp", "fsdp", "dp"]
MAX_RANKS = 64


def check_cpus(cpus: str | None) -> None:
    try:
        _ = cpus is None or parse_cpus(cpus)
    except ValueError as error:
        raise InvalidSpec("cpus", cpus, f"must be a list such as 0-3,8: {error}") from None


@dataclass(frozen=True, kw_only=True)
class PlaceSpec(Spec):
    """Fields that say where an experiment runs. They belong to the experiment itself, not to a
    part of it."""

    devices: Annotated[
        tuple[str, ...],
        Prompt(
            flag="--device",
            usual="the first GPU, or else the CPU",
            help="Device of every run: `cpu`, `cuda:N` (also for ROCm), `cuda` for any free "
            "GPU, or `mps`. Several of one kind, such as `cuda:0,cuda:1`, share every "
            "batch. `cpu,cpu` are two processes.",
        ),
    ] = ("cpu",)
    parallel: Annotated[
        Parallel,
        Prompt(
            "Several devices",
            help="How several devices work together. `ddp`: each has the whole model, and "
            "gradients are averaged (DistributedDataParallel). `fsdp`: each has a part of "
            "all weights (fully_shard). `dp`: one process copies the model in every step "
            "(DataParallel).",
        ),
    ] = "ddp"
    nodes: Annotated[
        int,
        Bounds(1, 64, "each is a machine of its own"),
        Prompt(
            "Machines",
            "--nnodes",
            help="Number of machines that every run uses, each with these devices. On every "
            "machine except the first, run `breakeven queue start --join` with the same "
            "data folder (docs/devices.md).",
        ),
    ] = 1
    cpus: Annotated[
        str | None,
        Prompt(
            "Dedicated CPUs",
            empty="near the device",
            rare=True,
            help="CPUs reserved for the experiment, such as `0-3,8`; by default those near its "
            "device, and on the CPU all. Experiments that share no device and no CPU run "
            "at the same time.",
        ),
    ] = None
    exclusive: Annotated[
        bool,
        Prompt(
            "Alone on the machine",
            rare=True,
            help="Whether no other experiment of the queue runs on the machine at the same "
            "time, not even on another device.",
        ),
    ] = False
    priority: Annotated[
        int,
        Bounds(-100, 100, "nothing needs more levels"),
        Prompt(
            rare=True,
            help="Experiments with a higher priority start first; with equal ones, the order "
            "is that of submission.",
        ),
    ] = 0
    cpu_threads: Annotated[
        int | None,
        Bounds(1, 4096, "no machine has more CPUs"),
        Prompt(
            "CPU threads",
            empty="half the CPUs",
            help="Threads of each run on the CPU; by default half of the CPUs that it may use.",
        ),
    ] = None

    @property
    def device(self) -> str:
        """The first device; all have its kind."""
        return self.devices[0]

    @property
    def num_ranks(self) -> int:
        """Processes of one run, each with a device of its own."""
        return self.ranks_per_node * self.nodes

    @property
    def ranks_per_node(self) -> int:
        """Processes of one run on one machine."""
        return 1 if self.parallel == "dp" else len(self.devices)

    @property
    def num_devices(self) -> int:
        """Devices that share every batch of a run."""
        return len(self.devices) * self.nodes

    @property
    def place(self) -> str:
        """All devices and how they work together, for people: `cuda:0`, `2 x cpu, ddp`."""
        if len(self.devices) == self.nodes == 1:
            return self.device
        machines = f", {self.nodes} machines" if self.nodes > 1 else ""
        return f"{self.named_devices}{machines}, {self.parallel}"

    @property
    def named_devices(self) -> str:
        """The devices of one machine, for people."""
        same = len(self.devices) > 1 and len(set(self.devices)) == 1
        return f"{len(self.devices)} x {self.device}" if same else " + ".join(self.devices)
