"""Where runs compute: devices, machines and CPUs, and what several devices do not support."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Literal, Protocol

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.fields import Bounds, Prompt, Spec, require
from breakeven.runner.specs.scenarios import Scenario
from breakeven.runner.specs.training import TrainingSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.specs.workload import DataSpec


def parse_cpus(text: str) -> frozenset[int]:
    """The numbers in a list such as `0-3,8`, as the kernel writes it (cpuset(7)); raises
    `ValueError` for anything else."""
    found: set[int] = set()
    for part in text.strip().split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip())
        if match is None:
            raise ValueError(f"{part!r} must be the number of a CPU or a range, such as 0-3")
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            raise ValueError(f"{part!r} must begin with the lower number")
        found.update(range(first, last + 1))
    return frozenset(found)


def write_cpus(cpus: Collection[int]) -> str:
    """The list that `parse_cpus` reads."""
    parts = []
    for _, group in groupby(enumerate(sorted(cpus)), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in group]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ",".join(parts)


Parallel = Literal["ddp", "fsdp", "dp", "spread"]
MAX_RANKS = 64


class SharingSettings(Protocol):
    """The fields of an experiment that decide whether several devices can share it."""

    @property
    def devices(self) -> tuple[str, ...]: ...
    @property
    def parallel(self) -> Parallel: ...
    @property
    def nodes(self) -> int: ...
    @property
    def kind(self) -> Scenario: ...
    @property
    def is_script(self) -> bool: ...
    @property
    def is_inference(self) -> bool: ...
    @property
    def training(self) -> TrainingSpec: ...
    @property
    def data(self) -> DataSpec: ...
    @property
    def backends(self) -> tuple[str, ...]: ...


def check_devices(devices: Sequence[str], parallel: Parallel) -> None:
    """Checks the names of devices: one, or several of one kind."""
    rule = "must name one or several devices: 'cpu', 'cuda:N', 'cuda' for any GPU, or 'mps'"
    named = all(re.fullmatch(r"cpu|mps|cuda(:\d+)?", device) for device in devices)
    require(bool(devices) and named, "devices", devices, rule)
    rule = f"must be at most {MAX_RANKS}: every run has a process for each of them"
    require(len(devices) <= MAX_RANKS, "devices", devices, rule)
    kinds = {device.partition(":")[0] for device in devices}
    rule = "must all be of one kind: the slowest would delay all others"
    require(len(kinds) == 1, "devices", devices, rule)
    twice = [device for device, count in Counter(devices).items() if count > 1]
    rule = "must not name a device twice; only 'cpu' can be shared by several processes"
    require(set(twice) <= {"cpu", "cuda"}, "devices", devices, rule)
    rule = "'dp' copies the model from one CUDA device to others; on CPUs choose 'ddp' or 'fsdp'"
    fits = parallel != "dp" or len(devices) == 1 or kinds == {"cuda"}
    require(fits, "parallel", parallel, rule)


def check_ddp_modes(spec: SharingSettings, compiled: Sequence[Variant]) -> None:
    """Only a run with DDP can choose how DDP is compiled."""
    has_ddp = spec.parallel == "ddp" and len(spec.devices) * spec.nodes > 1
    for text, variant in zip(spec.backends, compiled, strict=True):
        rule = "sets how Dynamo compiles DistributedDataParallel: name several devices, with 'ddp'"
        require(has_ddp or variant.optimize_ddp is None, "backends", text, rule)


def check_parallel(spec: SharingSettings, compiled: Sequence[Variant]) -> None:
    """Refuses settings that several devices do not support."""
    _check_nodes(spec)
    if spec.parallel == "spread":
        _check_spread(spec)
        return
    rule = "must name one device for a script, which starts its own processes"
    require(not spec.is_script, "devices", spec.devices, rule)
    rule = "must name one device in the scenario 'accuracy', which compares tensors of one batch"
    require(not spec.kind.compares_tensors, "devices", spec.devices, rule)
    rule = "must name one device for inference: without gradients devices have nothing to share"
    require(not spec.is_inference, "devices", spec.devices, rule)
    _check_batches(spec)
    _check_torch(spec, compiled)


def _check_nodes(spec: SharingSettings) -> None:
    rule = "must be 'ddp' or 'fsdp' on several machines: 'dp' and 'spread' stay on one machine"
    fits = spec.nodes == 1 or spec.parallel in ("ddp", "fsdp")
    require(fits, "parallel", spec.parallel, rule)
    rule = f"must be at most {MAX_RANKS} devices in all: every run has a process for each of them"
    require(len(spec.devices) * spec.nodes <= MAX_RANKS, "nodes", spec.nodes, rule)
    rule = "must be 1 in a scenario that compares no runs: machines have nothing to share"
    require(spec.nodes == 1 or spec.kind.compares_runs, "nodes", spec.nodes, rule)


def _check_spread(spec: SharingSettings) -> None:
    rule = "must not be 'spread' in the scenarios 'accuracy' and 'cache', which time no rounds"
    require(spec.kind.compares_runs, "parallel", spec.parallel, rule)
    rule = f"must be at least as many as the devices, {len(spec.devices)}: a device with only the "
    rule += "baseline shows nothing"
    require(len(spec.backends) >= len(spec.devices), "backends", spec.backends, rule)


def _check_batches(spec: SharingSettings) -> None:
    count, training = len(spec.devices) * spec.nodes, spec.training
    rule = f"must be a multiple of {count}: each of {count} devices takes an equal part"
    is_equal = training.batch_size % count == 0
    require(is_equal, "training.batch_size", training.batch_size, rule)
    left_over = spec.data.num_train_samples % training.batch_size
    rule = f"must be 'drop' or 'pad': {count} devices cannot share a batch of {left_over} equally"
    shares = training.last_batch != "dynamic" or left_over % count == 0
    require(shares, "training.last_batch", training.last_batch, rule)
    rule = f"must be 'drop': an epoch's last batch has {left_over} samples, not one for each "
    rule += "device, and a mean over no sample is undefined"
    fills = left_over == 0 or left_over > training.batch_size // count * (count - 1)
    require(training.last_batch != "pad" or fills, "training.last_batch", "pad", rule)


def _check_torch(spec: SharingSettings, compiled: Sequence[Variant]) -> None:
    """Refuses what torch does not support (`tests/runner/worker/ranks/test_support.py`)."""
    rule = "cannot be compiled with 'dp', which runs copies of the model in threads; name no "
    rule += "backend, to time it uncompiled, or choose 'ddp'"
    require(spec.parallel != "dp" or not compiled, "backends", spec.backends, rule)
    for text, variant in zip(spec.backends, compiled, strict=True):
        rule = "cannot be one graph: Dynamo cannot trace the code that gathers weights and "
        rule += "averages gradients; choose scope=blocks, or with 'ddp' "
        rule += "optimize_ddp=python_reducer"
        traces = variant.scope == "blocks" or variant.optimize_ddp == "python_reducer"
        in_one = variant.fullgraph and not traces
        require(not in_one, "backends", text, rule)
    precision = spec.training.precision
    rule = "does not work with 'fsdp', where each device would see an overflow only in its own "
    rule += "gradients; choose bf16"
    fits = spec.parallel != "fsdp" or precision != "fp16"
    require(fits, "training.precision", precision, rule)


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
        tuple[str, ...], Prompt(flag="--device", usual="the first GPU, or else the CPU")
    ] = ("cpu",)
    """Device of every run: `cpu`, `cuda:N` (also for ROCm), `cuda` for any free GPU, or `mps`.
    Several of one kind, such as `cuda:0,cuda:1`, share every batch or the runs, depending on
    `parallel`. `cpu,cpu` are two processes, or two halves of the CPUs."""
    parallel: Annotated[Parallel, Prompt("Several devices")] = "ddp"
    """How several devices work together. `ddp`: each has the whole model, and gradients are
    averaged (DistributedDataParallel). `fsdp`: each has a part of all weights (fully_shard). `dp`:
    one process copies the model in every step (DataParallel). `spread`: each runs some of the
    backends, with a baseline and a control of its own; the experiment ends sooner, and every
    interval includes the difference between the devices."""
    nodes: Annotated[
        int,
        Bounds(1, 64, "each is a machine of its own"),
        Prompt("Machines", "--nnodes"),
    ] = 1
    """Number of machines that every run uses, each with these devices. On every machine except the
    first, run `breakeven supervise --join` with the same data folder (docs/several-devices.md)."""
    cpus: Annotated[str | None, Prompt("Dedicated CPUs", empty="near the device")] = None
    """CPUs reserved for the experiment, such as `0-3,8`; by default those near its device, and on
    the CPU all. Experiments that share no device and no CPU run at the same time."""
    exclusive: Annotated[bool, Prompt("Alone on the machine", rare=True)] = False
    """Whether no other experiment of the queue runs on the machine at the same time, not even on
    another device."""
    priority: Annotated[int, Bounds(-100, 100, "nothing needs more levels"), Prompt(rare=True)] = 0
    """Experiments with a higher priority start first; with equal ones, the order is that of
    submission."""
    cpu_threads: Annotated[
        int | None,
        Bounds(1, 4096, "no machine has more CPUs"),
        Prompt("CPU threads", empty="half the CPUs"),
    ] = None
    """Threads of each run on the CPU; by default half of the CPUs that it may use."""

    def check_place(self) -> None:
        """Raises `InvalidSpec` for devices or CPUs that no machine has."""
        check_devices(self.devices, self.parallel)
        check_cpus(self.cpus)

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
        return 1 if self.parallel in ("dp", "spread") else len(self.devices)

    @property
    def num_devices(self) -> int:
        """Devices that share every batch of a run."""
        return 1 if self.parallel == "spread" else len(self.devices) * self.nodes

    @property
    def num_places(self) -> int:
        """Devices over which the runs are spread."""
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
