"""One run on several devices: how they work together, and what cannot be asked of them."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Protocol

from breakeven.runner.specs.scenarios import Scenario
from breakeven.runner.specs.training import TrainingSpec
from breakeven.runner.specs.validation import require
from breakeven.runner.specs.variants import Variant
from breakeven.runner.specs.workload import DataSpec

Parallel = Literal["ddp", "fsdp", "dp", "spread"]
MAX_RANKS = 64


class Asked(Protocol):
    """What of an experiment decides whether several devices can work at it."""

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
    """Names of devices, one or several of a kind."""
    rule = "must name a device, 'cpu', 'cuda:N', 'cuda' for any one, or 'mps', or several"
    named = all(re.fullmatch(r"cpu|mps|cuda(:\d+)?", device) for device in devices)
    require(bool(devices) and named, "devices", devices, rule)
    rule = f"must be at most {MAX_RANKS}: each is a process of every run"
    require(len(devices) <= MAX_RANKS, "devices", devices, rule)
    kinds = {device.partition(":")[0] for device in devices}
    rule = "must all be of one kind: the slowest would hold up all others"
    require(len(kinds) == 1, "devices", devices, rule)
    twice = [device for device, count in Counter(devices).items() if count > 1]
    rule = "must not name a device twice; 'cpu' alone can be shared by several processes"
    require(set(twice) <= {"cpu", "cuda"}, "devices", devices, rule)
    rule = "'dp' copies the model from one CUDA device to others; on CPUs choose 'ddp' or 'fsdp'"
    fits = parallel != "dp" or len(devices) == 1 or kinds == {"cuda"}
    require(fits, "parallel", parallel, rule)


def check_ddp_modes(asked: Asked, compiled: Sequence[Variant]) -> None:
    """How DDP is compiled can be asked of runs that have it."""
    has_ddp = asked.parallel == "ddp" and len(asked.devices) * asked.nodes > 1
    for text, variant in zip(asked.backends, compiled, strict=True):
        rule = (
            "says what Dynamo does with DistributedDataParallel: name several devices, with 'ddp'"
        )
        require(has_ddp or variant.optimize_ddp is None, "backends", text, rule)


def check_parallel(asked: Asked, compiled: Sequence[Variant]) -> None:
    """What cannot be asked of several devices."""
    _check_nodes(asked)
    if asked.parallel == "spread":
        _check_spread(asked)
        return
    rule = "must name one device for a script, which starts its own processes"
    require(not asked.is_script, "devices", asked.devices, rule)
    rule = "must name one device in the scenario 'accuracy', which compares tensors of one batch"
    require(not asked.kind.compares_tensors, "devices", asked.devices, rule)
    rule = "must name one device for inference: without gradients devices have nothing to share"
    require(not asked.is_inference, "devices", asked.devices, rule)
    _check_batches(asked)
    _check_torch(asked, compiled)


def _check_nodes(asked: Asked) -> None:
    rule = "must be 'ddp' or 'fsdp' over several machines: one process, or runs that are spread, "
    rule += "stay on one"
    fits = asked.nodes == 1 or asked.parallel in ("ddp", "fsdp")
    require(fits, "parallel", asked.parallel, rule)
    rule = f"must be at most {MAX_RANKS} devices in all: each is a process of every run"
    require(len(asked.devices) * asked.nodes <= MAX_RANKS, "nodes", asked.nodes, rule)
    rule = "must be 1 for scenarios that compare no runs: nothing there is shared"
    require(asked.nodes == 1 or asked.kind.compares_runs, "nodes", asked.nodes, rule)


def _check_spread(asked: Asked) -> None:
    rule = "must not be 'spread' in the scenarios 'accuracy' and 'cache', which time no rounds"
    require(asked.kind.compares_runs, "parallel", asked.parallel, rule)
    rule = f"must be at least as many as the devices, {len(asked.devices)}: one on which only the "
    rule += "baseline runs says nothing"
    require(len(asked.backends) >= len(asked.devices), "backends", asked.backends, rule)


def _check_batches(asked: Asked) -> None:
    count, training = len(asked.devices) * asked.nodes, asked.training
    rule = f"must be a multiple of {count}: each of {count} devices takes an equal part"
    is_equal = training.batch_size % count == 0
    require(is_equal, "training.batch_size", training.batch_size, rule)
    left_over = asked.data.num_train_samples % training.batch_size
    rule = f"must be 'drop' or 'pad': {count} devices cannot share a batch of {left_over} equally"
    shares = training.last_batch != "dynamic" or left_over % count == 0
    require(shares, "training.last_batch", training.last_batch, rule)
    rule = f"must be 'drop': of the {left_over} samples of an epoch's last batch not every device "
    rule += "has one, and the mean over no sample is no number"
    fills = left_over == 0 or left_over > training.batch_size // count * (count - 1)
    require(training.last_batch != "pad" or fills, "training.last_batch", "pad", rule)


def _check_torch(asked: Asked, compiled: Sequence[Variant]) -> None:
    """What torch does not support; `tests/runner/worker/ranks/test_support.py` asks it."""
    rule = "cannot be compiled with 'dp', which runs copies of the model in threads; leave out all "
    rule += "backends to time it as it is, or choose 'ddp'"
    require(asked.parallel != "dp" or not compiled, "backends", asked.backends, rule)
    for text, variant in zip(asked.backends, compiled, strict=True):
        rule = "cannot be one graph: Dynamo cannot trace what gathers weights and averages "
        rule += "gradients; choose scope=blocks, whose graphs lie between, or for 'ddp' "
        rule += "optimize_ddp=python_reducer, which traces it"
        traces = variant.scope == "blocks" or variant.optimize_ddp == "python_reducer"
        in_one = variant.fullgraph and not traces
        require(not in_one, "backends", text, rule)
    precision = asked.training.precision
    rule = "was never tried with 'fsdp', where each device sees its own gradients alone overflow; "
    rule += "choose bf16"
    fits = asked.parallel != "fsdp" or precision != "fp16"
    require(fits, "training.precision", precision, rule)
