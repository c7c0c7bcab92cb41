"""Describes and checks a script's workload when its first step begins. Hashes its inputs, code and
random states: equal hashes mean equal inputs.

A run without a compiler counts the floating-point operations of one step while the script makes it,
in a block that is not timed. It inspects every operation of torch and counts the same ones
as `torch.utils.flop_counter`: matrix products, convolutions and attention; an addition and a
multiplication are two operations. Fused attention counts as its matrix products, twice for the
backward pass, as in Breakeven's own tasks.
"""

import hashlib
import inspect
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode
from torch.utils.flop_counter import flop_registry

from breakeven.runner.errors import WorkloadError
from breakeven.runner.experiments.continuing import require_same_work
from breakeven.runner.protocol.events import FOUND_IN_SCRIPT
from breakeven.runner.specs.workload import SCRIPT_TASK
from breakeven.runner.worker.context import RunContext
from breakeven.runner.worker.data.splits import own_part, tensor_bytes
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.model.transformers_models import (
    kinds_of_buffers,
    perturb,
    weights_sha256,
)
from breakeven.runner.worker.script.script_sources import is_within

COLLECTIVES = ("c10d", "_c10d_functional", "fsdp")
"""Namespaces of operations that only send and receive."""
KNOWN_NAMESPACES = ("aten", "prim", "prims", "profiler", *COLLECTIVES)
"""Other namespaces hold a library's own kernels, whose operations are unknown."""
HEAVY = {
    "mm",
    "bmm",
    "addmm",
    "addbmm",
    "baddbmm",
    "mv",
    "addmv",
    "conv1d",
    "conv2d",
    "conv3d",
    "convolution",
    "linear",
    "rnn",
    "lstm",
    "gru",
    "attention",
    "fft",
    "linalg",
}
"""Words in the names of operations that compute much, counted or not."""
LIGHT = {
    "linalg_vector_norm",
    "linalg_cross",
    "_thnn_fused_lstm_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell",
    "_thnn_fused_gru_cell_backward",
}
"""Operations that compute little despite such a word in their names."""
FUSED_ATTENTION = "_scaled_dot_product_"
PRECISIONS = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}
FROM_FIRST_ATTEMPT = (
    "task",
    "num_parameters",
    "block_steps",
    "weights_sha256",
    "buffers",
    "data_sha256",
    "code_sha256",
    "precision",
    "flops_per_step",
    "uncounted",
)
"""Fields that later attempts copy from the first."""
SEVERAL_PROCESSES = (
    "the script trains with {} processes together, of which Breakeven started {}. Have it start "
    "them: breakeven run torchrun --nproc-per-node {} {}"
)
MAX_DEPTH = 8
"""Levels of nesting within a batch."""
WAVES = (0.7, 2.1)
"""Radians per entry of each wave."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Hashes of the arguments of a compiled function.

    Floating-point tensors are separate: a script may compute them, such as the hidden state of a
    recurrent network, so they may differ between runs.
    """

    sha256: str
    """Hash of all other arguments: whole numbers, texts, types and shapes."""
    floats: list[dict[str, Any]]
    """Floating-point tensors in their order: `sha256` of each, and `rough`, numbers that hardly
    change when the tensor's numbers hardly change."""

    tensors: list[Tensor]
    """The floating-point tensors themselves."""

    @property
    def whole_sha256(self) -> str:
        hashes = [self.sha256, *(floats["sha256"] for floats in self.floats)]
        return hashlib.sha256(" ".join(hashes).encode()).hexdigest()


COMPRESSED_ROWS = (Tensor.crow_indices, Tensor.col_indices, Tensor.values)
COMPRESSED_COLUMNS = (Tensor.ccol_indices, Tensor.row_indices, Tensor.values)
SPARSE: dict[torch.layout, tuple[Callable[[Tensor], Tensor], ...]] = {
    torch.sparse_coo: (Tensor._indices, Tensor._values),  # also before `coalesce`
    torch.sparse_csr: COMPRESSED_ROWS,
    torch.sparse_bsr: COMPRESSED_ROWS,
    torch.sparse_csc: COMPRESSED_COLUMNS,
    torch.sparse_bsc: COMPRESSED_COLUMNS,
}
"""The dense tensors of which a sparse one consists, such as a graph's edges."""


def hash_inputs(arguments: object) -> Inputs | None:
    """Hashes of all tensors and plain values in the arguments; None without a tensor. Waits for
    the device."""
    digest, has_tensor = hashlib.sha256(), False
    floats: list[dict[str, Any]] = []
    tensors: list[Tensor] = []
    for leaf in _leaves(arguments, MAX_DEPTH):
        if not isinstance(leaf, Tensor):
            digest.update(repr(leaf).encode())
            continue
        has_tensor = True
        digest.update(f"{leaf.dtype} {tuple(leaf.shape)} ".encode())
        if leaf.is_floating_point():
            sha256 = hashlib.sha256(tensor_bytes(leaf)).hexdigest()[:16]
            floats.append({"sha256": sha256, "rough": _rough(leaf)})
            tensors.append(leaf)
        else:
            digest.update(tensor_bytes(leaf))
    inputs = Inputs(sha256=digest.hexdigest(), floats=floats, tensors=tensors)
    return inputs if has_tensor else None


def _joined(hashes: Sequence[str | None]) -> str | None:
    """The hashes of all ranks, in their order; the common one if they are equal."""
    return "-".join(map(str, hashes)) if len(set(hashes)) > 1 else hashes[0]


def _rough(tensor: Tensor) -> list[float]:
    """Root mean square, mean, and two sums with wave weights, which depend on the order."""
    flat = own_part(tensor).detach().reshape(-1).float()
    if not len(flat):
        return []
    places = torch.arange(len(flat), device=flat.device)
    waves = [(flat * torch.cos(places * turn)).sum() / len(flat) ** 0.5 for turn in WAVES]
    sums = torch.stack([flat.square().mean().sqrt(), flat.mean(), *waves])
    return [float(value) for value in sums.tolist()]


def _leaves(value: object, depth: int) -> Iterator[Tensor | bool | int | float | str]:
    """Yields tensors and plain values in their order, without modules."""
    if isinstance(value, Tensor) and value.layout in SPARSE:
        yield from (
            str(value.layout),
            *value.shape,
            *(part(value) for part in SPARSE[value.layout]),
        )
    elif isinstance(value, (Tensor, bool, int, float, str)) and not isinstance(value, nn.Parameter):
        yield value
    elif depth and isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for entry in value:
            yield from _leaves(entry, depth - 1)
    elif depth and hasattr(value, "data") and isinstance(value.data, Mapping):
        yield from _leaves(value.data, depth - 1)  # transformers' BatchEncoding


def code_sha256(folder: Path) -> str:
    """Hash of the Python files of a folder that are loaded so far, including the script."""
    loaded = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    digest = hashlib.sha256()
    for name in sorted(loaded):
        if name.endswith(".py") and is_within(name, folder):
            digest.update(Path(name).read_bytes())
    return digest.hexdigest()


def random_states(device: Device) -> dict[str, str]:
    """A short hash of the state of each random number generator, by its name."""
    states: dict[str, bytes] = {
        "python": repr(random.getstate()).encode(),
        "torch": tensor_bytes(torch.get_rng_state()),
        **{name: tensor_bytes(state) for name, state in device.random_state().items()},
    }
    if (numpy := sys.modules.get("numpy")) is not None:
        states["numpy"] = repr(numpy.random.get_state(legacy=False)["state"]).encode()
    return {name: hashlib.sha256(state).hexdigest()[:16] for name, state in states.items()}


def find_models(function: Callable[..., Any]) -> list[nn.Module]:
    """The models that a function uses: its object, or models in its closure or globals."""
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        return [owner]
    try:
        variables = inspect.getclosurevars(inspect.unwrap(function))
    except TypeError:
        return []
    named = [*variables.nonlocals.values(), *variables.globals.values()]
    models = [value for value in named if isinstance(value, nn.Module)]
    return [getattr(m, "_orig_mod", m) for m in models]  # without the wrapper of torch.compile


def describe_class(module: nn.Module) -> str:
    """The class of a module, with the place of its definition if this is known."""
    kind = type(module)
    try:
        file, line = inspect.getsourcefile(kind), inspect.getsourcelines(kind)[1]
    except (OSError, TypeError):
        return kind.__name__
    return f"{kind.__name__} ({Path(file or '').name}:{line})"


def has_lazy_weights(model: nn.Module) -> bool:
    return any(is_lazy(tensor) for tensor in chain(model.parameters(), model.buffers()))


@torch.no_grad()
def make_lazy_weights(model: nn.Module, args: Any, kwargs: Any) -> None:
    """Makes the weights that lazy layers make in their first call, by a call that updates no
    statistics and draws no dropout."""
    modes = {module: module.training for module in model.modules()}
    model.eval()
    model(*args, **kwargs)
    for module, mode in modes.items():
        module.training = mode


class StepFlops(TorchDispatchMode):
    """Counts operations from `begin` to `end`, without changing them."""

    supports_higher_order_operators = True

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Lets libraries compile their own code meanwhile."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._total = 0
        self.uncounted: set[str] = set()
        """Names of operations that compute much and cannot be counted."""
        self._is_paused = False
        self.is_counting = False

    @property
    def flops(self) -> int | None:
        """Operations so far; None if some could not be counted."""
        return None if self.uncounted else self._total

    def begin(self) -> None:
        self.is_counting = True
        self.__enter__()  # type: ignore[no-untyped-call]

    def pause(self, is_paused: bool) -> None:
        """Excludes work outside of the step, such as an evaluation."""
        self._is_paused = is_paused

    def end(self) -> None:
        """Stops counting; does nothing if it has not begun."""
        if not self.is_counting:
            return
        self.is_counting = False
        if _get_current_dispatch_mode() is self:
            self.__exit__(None, None, None)  # type: ignore[no-untyped-call]
        else:  # the script entered another mode in this step and has not left it
            self._is_paused = True
            self.uncounted.add("a torch dispatch mode that stays active after the step")

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self._is_paused:
            # An unusual operation must not end the script.
            try:
                self._count(func, args, kwargs or {}, result)
            except Exception:
                self.uncounted.add(str(func))
        return result

    def _count(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        packet = getattr(func, "_overloadpacket", func)
        name = getattr(packet, "__name__", str(packet))
        if name.startswith(FUSED_ATTENTION):
            is_backward = "_backward" in name
            query, key, value = args[1:4] if is_backward else args[:3]
            self._total += _attention(query, key, value) * (2 if is_backward else 1)
        elif packet in flop_registry:
            if any(hasattr(argument, "placements") for argument in args):
                self.uncounted.add(f"{name} of tensors that ranks share")
            self._total += flop_registry[packet](*args, **kwargs, out_val=result)
        elif _is_heavy(func, name):
            self.uncounted.add(name)


def _attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> int:
    """Operations of both matrix products; tensors are (batch, heads, length, width)."""
    *many, queries, width = query.shape
    pairs = torch.Size(many).numel() * queries * key.shape[-2]
    return 2 * pairs * (width + value.shape[-1])


def _is_heavy(func: Any, name: str) -> bool:
    namespace = getattr(func, "namespace", None)
    if namespace not in KNOWN_NAMESPACES:
        return True
    return name not in LIGHT and not HEAVY.isdisjoint(name.strip("_").split("_"))


@dataclass
class FoundInScript:
    """What was found in a script that does not say it."""

    step_ends: str | None = None
    """What ends a step."""
    loss_at: str | None = None
    """Place of the backward pass whose loss is that of the step."""
    models: list[str] = field(default_factory=list)
    """Descriptions of the compiled models."""

    def sentences(self, sizes: Iterable[str]) -> list[str]:
        """One sentence; empty if the script says all by itself. `sizes`: which sizes of a step are
        known, `samples`, `tokens`; they are guessed."""
        guesses = [] if self.step_ends is None else list(sizes)
        parts = [
            self.step_ends and f"a step ends with {self.step_ends}",
            self.loss_at and f"its loss is what goes backward at {self.loss_at}",
            self.models and _to_compile(self.models),
            guesses and f"the number of {' and '.join(guesses)} is guessed from its first argument",
        ]
        text = "; ".join(part for part in parts if part)
        return [f"{FOUND_IN_SCRIPT}: {text}."] if text else []


def _to_compile(models: Sequence[str]) -> str:
    counts = Counter(models).items()
    named = " and ".join(text if count == 1 else f"{count} x {text}" for text, count in counts)
    return f"the {'model to compile is' if len(models) == 1 else 'models to compile are'} {named}"


class ScriptWorkload:
    """Writes the `workload` event, and again when more is known; the last event counts."""

    def __init__(
        self, context: RunContext, compile_calls: dict[str, str], clock_reads: list[str]
    ) -> None:
        """`compile_calls`: arguments of each `torch.compile` in the script by place; `clock_reads`:
        places where the script reads the clock. The running script adds to both."""
        self._experiment, self._arm = context.experiment, context.arm
        self._device, self._log = context.device, context.log
        self._context, self._group = context, context.group
        self._num_parts = 1
        """Number of parts of each batch: ranks that were given equal arguments share a part."""
        self._num_threads = torch.get_num_threads()
        self._compile_calls, self._clock_reads = compile_calls, clock_reads
        self._known: dict[str, Any] = {}
        self._flops: dict[str, Any] | None = None
        self._counts: dict[str, list[int]] = {"samples": [], "tokens": []}
        self.num_steps = context.experiment.num_steps
        """Number of steps that the script will make; 0 if unknown."""
        self._perturbs_state = False
        self.notes: list[str] = []
        self.findings = FoundInScript()
        self.fixed: dict[str, str] = {}
        """Why no arm can change a setting, by its name."""

    def begin(self, models: list[nn.Module], arguments: object) -> None:
        """Describes the models and their first arguments before the first step. Perturbs the
        weights of a control; raises `WorkloadError` for a script that cannot be measured."""
        self._check(models)
        parameters = {p for model in models for p in model.parameters()}
        hashes, inputs = [weights_sha256(model) for model in models], hash_inputs(arguments)
        own = ("-".join(hashes) or None, inputs and inputs.whole_sha256)
        weights, data = zip(*self._group.gather(own), strict=True)
        self._num_parts = len(set(data))
        self._known = {
            "task": SCRIPT_TASK,
            "num_parameters": sum(p.numel() for p in parameters) or None,
            "block_steps": self._experiment.block_steps,
            "weights_sha256": _joined(weights),
            "buffers": sorted({name for model in models for name in kinds_of_buffers(model)}),
            "data_sha256": _joined(data),
            "code_sha256": code_sha256(self._context.workplace),
        }
        if self._context.only_times:
            require_same_work(self._context.run, self._known)
        if self._arm.perturbation:
            self._perturb(models)
        if self._arm.backend is None or self._arm.role == "baseline":
            self._learn_precision(models)
        self.write()

    def add_model(self, model: nn.Module, *, is_late: bool) -> None:
        """Adds a model whose first call comes after the first step has begun. One that comes late
        may begin with weights that were trained before, which differ by rounding."""
        self._check([model])
        if not is_late:
            hashes = [self._known["weights_sha256"], weights_sha256(model)]
            self._known["weights_sha256"] = "-".join(filter(None, hashes))
            known = self._known["buffers"] or []
            self._known["buffers"] = sorted({*known, *kinds_of_buffers(model)})
        size = sum(parameter.numel() for parameter in model.parameters())
        self._known["num_parameters"] = (self._known["num_parameters"] or 0) + size
        if self._arm.perturbation:
            self._perturb([model])
        self.write()

    def resume(self, models: list[nn.Module], recorded: Mapping[str, Any]) -> None:
        """As `begin`, but takes the workload that an earlier attempt recorded."""
        self._check(models)
        self._known = {name: recorded.get(name) for name in FROM_FIRST_ATTEMPT}
        self.notes[:0] = [note for note in recorded.get("notes") or () if note not in self.notes]
        self.write()

    def of_all_ranks(self, count: int | None) -> int | None:
        """The samples or tokens that all ranks took in a step in which this one took `count`."""
        return None if count is None else count * self._num_parts

    def count(self, samples: int | None, tokens: int | None) -> None:
        """Adds the samples and tokens of a step; None if unknown."""
        for name, count in (("samples", samples), ("tokens", tokens)):
            if count is not None:
                self._counts[name].append(int(count))

    def counted(self, counter: StepFlops, samples: int | None, tokens: int | None) -> None:
        """Stores the floating-point operations of a step with these samples and tokens, or the
        names of operations that could not be counted."""
        if counter.flops is not None:
            self._flops = {"flops": counter.flops, "samples": samples, "tokens": tokens}
            return
        self._known["uncounted"] = sorted(counter.uncounted)

    def shapes_counted(self, shapes: dict[str, Any] | None, padding_share: float | None) -> None:
        """Stores how often the shapes of the inputs changed, and the share of padding in them."""
        self._known |= {"input_shapes": shapes, "padding_share": padding_share}

    def write(self) -> None:
        if self._context.only_times:
            return  # The journal keeps what the finished training recorded.
        means = {name: round(sum(n) / len(n)) for name, n in self._counts.items() if n}
        if self._flops is not None:
            flops = self._flops["flops"] * self._group.size
            self._known["flops_per_step"] = flops * self._relative_step_size(means)
        self._log.append(
            "workload",
            **self._known,
            num_steps=self.num_steps or None,
            samples_per_step=means.get("samples"),
            tokens_per_step=means.get("tokens"),
            fixed_settings=sorted(self.fixed),
            clock_reads=self._clock_reads,
            notes=[
                *self.notes,
                *self.findings.sentences(means),
                *(self.fixed.values() if self._experiment.kind.has_candidates else ()),
                *(
                    f"{place} calls torch.compile"
                    + (f" with {settings}" if settings else "")
                    + "; in each run this call uses the backend of the run."
                    for place, settings in self._compile_calls.items()
                ),
            ],
        )

    def _relative_step_size(self, means: Mapping[str, int]) -> float:
        """Size of the mean step, as a multiple of the step that was counted."""
        for name in ("tokens", "samples"):
            if self._flops is not None and self._flops[name] and name in means:
                return float(means[name] / self._flops[name])
        return 1.0

    def _check(self, models: list[nn.Module]) -> None:
        """Raises `WorkloadError` for a script that cannot be measured; notes a changed number of
        threads."""
        threads = torch.get_num_threads()
        if threads != self._num_threads:
            self.notes.append(
                f"The script had torch compute with {threads} threads instead of "
                f"{self._num_threads}."
            )
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            processes, known = distributed.get_world_size(), self._group.size
            if processes > known:
                name = Path(self._experiment.model.script or "").name
                raise WorkloadError(SEVERAL_PROCESSES.format(processes, known, processes, name))
        wanted = self._device.torch_device.type
        for parameter in (p for model in models for p in model.parameters()):
            if parameter.device.type != wanted:
                raise WorkloadError(
                    f"the script's model is on {parameter.device.type!r}, and the experiment "
                    f"measures {wanted!r}: move the model there, or choose another --device"
                )
            break

    def _learn_precision(self, models: list[nn.Module]) -> None:
        """Reads the precision of the first layer during its forward pass: autocast may change it.
        In a compiled run before this pass, because the compiler would compile the hook, too."""
        layers = [
            layer
            for model in models
            for layer in model.modules()
            if next(layer.parameters(recurse=False), None) is not None
        ]
        if not layers:
            return

        def look(layer: nn.Module) -> None:
            kind = self._device.torch_device.type
            dtype = next(layer.parameters(recurse=False)).dtype
            if dtype == torch.float32 and torch.is_autocast_enabled(kind):
                dtype = torch.get_autocast_dtype(kind)
            name = PRECISIONS.get(dtype)
            is_tf32 = name == "float32" and self._device.uses_tf32
            self._known["precision"] = "tf32" if is_tf32 else name
            self.write()

        if self._arm.backend is not None:
            look(layers[0])
            return

        def look_once(layer: nn.Module, _arguments: object) -> None:
            handle.remove()
            look(layer)

        handle = layers[0].register_forward_pre_hook(look_once)

    def _perturb(self, models: list[nn.Module]) -> None:
        self._perturbs_state = not models
        hashes = [weights_sha256(model) for model in models]
        for model, sha256 in zip(models, hashes, strict=True):
            number = hashes.index(sha256)  # a copy, such as a target network, remains a copy
            seed = self._experiment.training.seed + self._arm.perturbation_seed + 1000 * number
            perturb(model, self._arm.perturbation, seed)

    @torch.no_grad()
    def perturb_state(self, tensors: list[Tensor]) -> None:
        """Perturbs the state that a compiled function gets back, such as weights, if it refers to
        no model; in a control alone, once."""
        if not self._perturbs_state:
            return
        self._perturbs_state = False
        seed = self._experiment.training.seed + self._arm.perturbation_seed
        generator = torch.Generator().manual_seed(seed + 1)
        for tensor in tensors:
            noise = torch.randn(tensor.shape, generator=generator)
            # By `data`, because the script may still need the tensor for a backward pass.
            tensor.data.mul_((1 + self._arm.perturbation * noise).to(tensor))
        if not tensors:
            self.notes.append(
                "The compiled function refers to no model, so the control's weights are not "
                "perturbed: name the model, `breakeven.compile(function, model=model)`."
            )
