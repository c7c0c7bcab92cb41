"""Where an experiment's runs compute: on which devices and CPUs, beside whom, and after whom."""

from dataclasses import dataclass
from typing import Annotated

from breakeven.runner.specs import rules
from breakeven.runner.specs.bounds import Bounds
from breakeven.runner.specs.parallel import Parallel, check_devices
from breakeven.runner.specs.validation import Spec


@dataclass(frozen=True, kw_only=True)
class PlaceSpec(Spec):
    """The fields of an experiment that say where it runs. They are the experiment's own, not a part
    of it with a name."""

    devices: tuple[str, ...] = ("cpu",)
    """Where each run computes: one device, `cpu`, `cuda:N` (of ROCm as well), `cuda` for any one
    that is free, or `mps`; or several of a kind, `cuda:0,cuda:1`, which share every batch or the
    runs, as `parallel` says; `cpu,cpu` are two processes, or two halves of the CPUs."""
    parallel: Parallel = "ddp"
    """How several devices work together. `ddp`: each has the whole model, and gradients are
    averaged (DistributedDataParallel). `fsdp`: each keeps a part of all weights (fully_shard).
    `dp`: one process for all, which copies the model in every step (DataParallel). `spread`: each
    has some of the backends to itself, beside a baseline and a control of its own, which is sooner
    over; what the devices differ by is then part of every interval."""
    nodes: Annotated[int, Bounds(1, 64, "each is a machine of its own")] = 1
    """Machines that every run spans, each with these devices. On all but the first one,
    `breakeven join` takes part, with the same data folder (docs/several-devices.md)."""
    cpus: str | None = None
    """Which CPUs the experiment has to itself, such as `0-3,8`; None means those near its device,
    and on the CPU all. Experiments that name no CPU in common may run at the same time."""
    exclusive: bool = False
    """Whether nothing else of the queue runs on the machine meanwhile, on other devices either."""
    priority: Annotated[int, Bounds(-100, 100, "nothing needs more steps to be told apart")] = 0
    """Higher ones come first in the queue; of equal ones, those that were submitted first."""
    cpu_threads: Annotated[int | None, Bounds(1, 4096, "no machine has more CPUs")] = None
    """Threads a run computes with on the CPU; None means half the CPUs that it may use."""

    def check_place(self) -> None:
        """Raises `InvalidSpec` for what no machine could give."""
        check_devices(self.devices, self.parallel)
        rules.check_cpus(self.cpus)

    @property
    def device(self) -> str:
        """The first device, which stands for the kind of them all."""
        return self.devices[0]

    @property
    def num_ranks(self) -> int:
        """Processes that one run consists of, each with a device of its own."""
        return self.ranks_per_node * self.nodes

    @property
    def ranks_per_node(self) -> int:
        """Those on one machine."""
        return 1 if self.parallel in ("dp", "spread") else len(self.devices)

    @property
    def num_devices(self) -> int:
        """Devices that share every batch of a run."""
        return 1 if self.parallel == "spread" else len(self.devices) * self.nodes

    @property
    def num_places(self) -> int:
        """Devices that the runs are spread over."""
        return len(self.devices) if self.parallel == "spread" else 1

    @property
    def place(self) -> str:
        """All devices and how they work together, for people: `cuda:0`, `2 x cpu, ddp`."""
        if len(self.devices) == self.nodes == 1:
            return self.device
        same = len(self.devices) > 1 and len(set(self.devices)) == 1
        named = f"{len(self.devices)} x {self.device}" if same else " + ".join(self.devices)
        machines = f", {self.nodes} machines" if self.nodes > 1 else ""
        return f"{named}{machines}, {self.parallel}"
