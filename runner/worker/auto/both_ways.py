"""Computes a step's forward and backward pass with and without the compiler, beside the training.

The batch, the weights and the random numbers are those of the training, and everything that a pass
changes is put back. What may differ is rounding: further passes, in which each operation rounds
differently, measure its effect on each tensor.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, is_dataclass
from hashlib import sha256
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from breakeven.runner.worker.auto.untouched import Untouched
from breakeven.runner.worker.correctness.paired_answers import NUMBERS_AT_ONCE, PerturbedRounding
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.random_state import random_state

FACTOR = 10.0
"""Largest allowed difference, in multiples of the effect of rounding."""
USUAL_DRAWS, MAX_DRAWS = 2, 8
"""Passes with perturbed rounding: at first, and before a tensor counts as wrong."""
COMPILED_CALLS = 3
"""Compiled passes of the first comparison: a backend may warm up, or fail at a later call."""

Call = Callable[..., Any]


@dataclass(frozen=True)
class Pass:
    """What a forward and a backward pass computed and changed, by name."""

    tensors: dict[str, Tensor]
    random: str
    """The states of all generators behind the pass."""


class BothWays:
    """The two ways to compute a step of a model."""

    def __init__(self, model: nn.Module, plain: Call, compiled: Call, device: Device) -> None:
        self._model, self._plain, self._compiled = model, plain, compiled
        self._device = device
        self._noise: dict[str, float] = {}
        """Effect of rounding on each tensor, in proportion to its largest element."""

    def compare(self, args: Any, kwargs: Any, *, is_first: bool) -> str | None:
        """What the compiler computes wrongly, in words; None if nothing. Whatever is raised, the
        training is as before."""
        before = Untouched(self._model, self._device)
        try:
            # The plain pass comes first: what it raises is no fault of the compiler.
            plain = self._pass(self._plain, args, kwargs, before)
            for _ in range(COMPILED_CALLS if is_first else 1):
                compiled = self._pass(self._compiled, args, kwargs, before)
                if plain.random != compiled.random:
                    return "it draws other random numbers"
                for _ in self._draws(plain, args, kwargs, before):
                    if (wrong := self._wrong(plain, compiled)) is None:
                        break
                else:
                    return wrong
        finally:
            before.restore()
            torch.clear_autocast_cache()
        return None

    def _draws(self, plain: Pass, args: Any, kwargs: Any, before: Untouched) -> Iterator[None]:
        """Measures the effect of rounding better and better; yields after each measurement, and at
        first if there was one in an earlier comparison."""
        if self._noise:
            yield
        for draw in range(MAX_DRAWS):
            rounding = PerturbedRounding(draw, self._device.torch_device)
            rounded = self._pass(self._plain, args, kwargs, before, rounding)
            for name, difference in _differences(plain, rounded).items():
                share = difference / _largest(plain.tensors[name])
                if math.isfinite(share):
                    self._noise[name] = max(self._noise.get(name, 0.0), share)
            if draw >= USUAL_DRAWS - 1:
                yield

    def _wrong(self, plain: Pass, compiled: Pass) -> str | None:
        """The tensor that differs most, if by more than rounding explains."""
        if missing := plain.tensors.keys() ^ compiled.tensors.keys():
            return f"only one way has {min(missing)}"
        times = {
            name: difference / (FACTOR * self._allowed(name, plain.tensors[name]))
            for name, difference in _differences(plain, compiled).items()
        }
        worst = max(times, key=lambda name: times[name], default="")
        if not worst or times[worst] <= 1:
            return None
        expected, got = plain.tensors[worst], compiled.tensors[worst]
        if got.shape != expected.shape or got.dtype != expected.dtype:
            kinds = (f"{tensor.dtype} of {tuple(tensor.shape)}" for tensor in (got, expected))
            return "{} is {} in place of {}".format(worst, *kinds)
        if not (expected.is_floating_point() or expected.is_complex()):
            return f"{worst} has other numbers"
        if math.isinf(times[worst]):
            return f"{worst} is not finite where it is without the compiler"
        return f"{worst} differs by {FACTOR * times[worst]:.3g} times the effect of rounding"

    def _allowed(self, name: str, tensor: Tensor) -> float:
        """The effect of rounding on a tensor: at least a unit in its last place."""
        has_fraction = tensor.is_floating_point() or tensor.is_complex()
        least = torch.finfo(tensor.dtype).eps if has_fraction else 1.0
        return _largest(tensor) * max(self._noise.get(name, 0.0), least)

    def _pass(
        self,
        call: Call,
        args: Any,
        kwargs: Any,
        before: Untouched,
        rounding: PerturbedRounding | None = None,
    ) -> Pass:
        before.restore()
        torch.clear_autocast_cache()
        args, kwargs = tree_map_only(Tensor, _copied, (args, kwargs))
        inputs = dict(enumerate(_tensors([args, kwargs])))
        wanted = {f"input {place}": tensor for place, tensor in inputs.items()}
        wanted |= dict(self._model.named_parameters())
        wanted = {name: tensor for name, tensor in wanted.items() if tensor.requires_grad}
        with nullcontext() if rounding is None else rounding:
            outputs = dict(enumerate(_tensors(call(*args, **kwargs))))
            with ExitStack() as without_autocast:
                for kind in {self._device.torch_device.type, "cpu"}:
                    without_autocast.enter_context(torch.autocast(kind, enabled=False))
                gradients = _gradients(outputs, wanted)
        tensors = {f"output {place}": tensor for place, tensor in outputs.items()}
        tensors |= {f"the gradient of {name}": tensor for name, tensor in gradients.items()}
        tensors |= {f"input {place} behind the pass": tensor for place, tensor in inputs.items()}
        state = {**dict(self._model.named_buffers()), **dict(self._model.named_parameters())}
        tensors |= {f"{name} behind the pass": tensor for name, tensor in state.items()}
        return Pass(
            tensors={name: before.copied(tensor) for name, tensor in tensors.items()},
            random=_digest(random_state(self._device)),
        )


def _digest(random: dict[str, Any]) -> str:
    states = {
        name: state.tolist() if isinstance(state, Tensor) else state
        for name, state in random.items()
    }
    return sha256(repr(states).encode()).hexdigest()


def _copied(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def _gradients(outputs: Mapping[int, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of a sum of all outputs: of a loss by itself, of others with random weights,
    which are about as small as those of a mean over all rows."""
    roots, weights = [], []
    for place, output in outputs.items():
        if output.requires_grad:
            generator = torch.Generator(output.device).manual_seed(place)
            weight = torch.ones_like(output)
            if output.numel() > 1:
                rows = max(1, output.numel() // output.shape[-1])
                weight = torch.empty_like(output).normal_(generator=generator) / rows
            roots.append(output)
            weights.append(weight)
    if not roots or not wanted:
        return {}
    gradients = torch.autograd.grad(roots, [*wanted.values()], weights, allow_unused=True)
    pairs = zip(wanted, gradients, strict=True)
    return {name: gradient for name, gradient in pairs if gradient is not None}


def _tensors(value: Any) -> Iterator[Tensor]:
    """All tensors in a value, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for entry in value.values():
            yield from _tensors(entry)
    elif isinstance(value, (list, tuple)):
        for entry in value:
            yield from _tensors(entry)
    elif is_dataclass(value) and not isinstance(value, type):
        yield from _tensors(vars(value))


def _differences(plain: Pass, other: Pass) -> dict[str, float]:
    """The largest difference of each tensor that both have; infinite for another kind."""
    return {
        name: _difference(tensor, other.tensors[name])
        for name, tensor in plain.tensors.items()
        if name in other.tensors
    }


def _difference(tensor: Tensor, other: Tensor) -> float:
    if tensor.shape != other.shape or tensor.dtype != other.dtype:
        return math.inf
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0.0 if torch.equal(tensor, other) else math.inf
    sides = (torch.split(side.reshape(-1), NUMBERS_AT_ONCE) for side in (tensor, other))
    pieces = zip(*sides, strict=True)
    return max((_of_piece(*piece) for piece in pieces), default=0.0)


def _of_piece(piece: Tensor, other: Tensor) -> float:
    if piece.is_complex():
        piece, other = torch.view_as_real(piece), torch.view_as_real(other)
    same = (piece == other) | (piece.isnan() & other.isnan())
    apart = (piece.double() - other.double()).abs().masked_fill(same, 0.0)
    largest = apart.nan_to_num(nan=math.inf).max().item() if apart.numel() else 0.0
    return float(largest)


def _largest(tensor: Tensor) -> float:
    """The size of the largest element; not quite 0, so that shares of it are numbers."""
    if not tensor.numel() or not (tensor.is_floating_point() or tensor.is_complex()):
        return 1.0
    finite = tensor.abs().nan_to_num(nan=0.0, posinf=0.0)
    return max(float(finite.max()), torch.finfo(tensor.dtype).tiny)
