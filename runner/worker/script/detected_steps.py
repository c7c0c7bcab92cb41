"""Finds the steps of a script that marks none, by what every training with torch calls.

A step ends with a step of the script's optimizers; its losses are the tensors on which `backward`
is called. A script that makes no optimizer changes its weights itself, between a backward pass and
the next forward pass. Nothing here waits for the device or draws a random number.
"""

import functools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from types import FrameType
from typing import Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from breakeven.runner.worker.script.script_optimizers import ScriptOptimizers
from breakeven.runner.worker.script.step_ends import StepEnds
from breakeven.runner.worker.script.torch_compile import place_of, scripts_frame

MOST_FORWARDS = 2
"""Calls of a model before a backward pass with a known batch, as of a judge of real and made
samples. With more the batch is spread over them, as over the moves of a game."""
UNSCALED = "_breakeven_unscaled"
"""Attribute of a loss that `GradScaler` has scaled: the loss before."""


@dataclass
class BackwardPasses:
    """The backward passes of a step at one place of the script."""

    loss: Tensor | None = None
    """Sum of the losses; None if one of them has several elements."""
    samples: int | None = None
    tokens: int | None = None

    def add(self, other: "BackwardPasses") -> None:
        self.loss = None if self.loss is None or other.loss is None else self.loss + other.loss
        self.samples = _sum(self.samples, other.samples)
        self.tokens = _sum(self.tokens, other.tokens)


def _sum(count: int | None, other: int | None) -> int | None:
    return None if count is None or other is None else count + other


@dataclass
class DetectedStep:
    """A step of the training, or the part of it that ends with a step of one optimizer."""

    passes: dict[str, BackwardPasses] = field(default_factory=dict)
    """By place in the script, in the order of the first pass at each."""
    learning_rate: float | Tensor | None = None
    num_marks: int = 0
    """Parts whose end the clock has marked already."""
    is_marked: bool = False
    """Whether the clock has marked the end of the last part."""

    def then(self, later: "DetectedStep") -> "DetectedStep":
        """This part and a later one, whose losses count where this part has none."""
        passes = {**later.passes, **self.passes}
        return DetectedStep(
            {place: passes[place] for place in (*self.passes, *later.passes)},
            self.learning_rate,
            self.num_marks + later.num_marks,
            later.is_marked,
        )


class Measures(Protocol):
    """Who measures the detected steps."""

    def detects_steps(self) -> bool:
        """Whether nobody else marks the end of steps."""
        ...

    def optimizer_begins(self) -> None:
        """Learns that an optimizer has made its first step."""
        ...

    def part_made(self) -> None:
        """Marks the time of what may be the end of a step."""
        ...

    def steps_detected(self, steps: list[DetectedStep]) -> None:
        """Gets steps that are now known to have ended, the last of them just now."""
        ...


class StepDetector:
    """Informs the session of each step of a script."""

    def __init__(
        self, measures: Measures, optimizers: ScriptOptimizers, *, copies_losses: bool
    ) -> None:
        """`copies_losses`: whether the next forward pass overwrites a loss in place."""
        self._measures = measures
        self._copies_losses = copies_losses
        self._optimizers = optimizers
        self._ends = StepEnds()
        self._parts: list[DetectedStep] = []
        """Parts of steps whose end is unknown."""
        self._open = DetectedStep()
        self._active: list[tuple[Optimizer, FrameType]] = []
        """Optimizers that make a step now, each within the previous one, and where they do."""
        self._num_steps: dict[int, int] = {}
        """Steps of each optimizer, by its number."""
        self._scalers: WeakSet[GradScaler] = WeakSet()
        """Those that have scaled a loss."""
        self._is_going_back = False
        self._sizes: tuple[set[int], set[int]] = set(), set()
        """Samples and tokens that trained models got since the last backward pass."""
        self._places: dict[tuple[str, int], str] = {}
        self._num_forwards: Counter[nn.Module | None] = Counter()
        """Calls of each trained model since the last backward pass."""

    @property
    def steps_by_itself(self) -> bool:
        """Whether the script changes its weights without an optimizer of torch."""
        return not self._num_steps and not self._optimizers.numbers()

    def describe(self, models: Mapping[nn.Module, str]) -> str:
        """What ends a step, as the end of a sentence; an optimizer is named with those of these
        models, given with their names, that it trains."""
        if self.steps_by_itself:
            return "each backward pass, because the script makes no optimizer of torch.optim"
        counting = self._ends.counting
        if counting is not None:
            name = self._optimizers.describe(counting, models)
            return f"each step of {name}, because its optimizers follow no cycle"
        names = [self._optimizers.describe(number, models) for number in self._ends.cycle]
        if len(names) == 1:
            return f"each step of {names[0]}"
        steps = [(name, len(list(repeated))) for name, repeated in groupby(names)]
        counted = [name if count == 1 else f"{count} x {name}" for name, count in steps]
        return f"the last of {', '.join(counted)}"

    def gradient_scales(self) -> dict[str, list[float]]:
        """The scales of the script's `GradScaler`s, as `ScriptOptimizers.settings`; each step that
        one leaves out halves its scale. Waits for the device."""
        scales = [scaler.get_scale() for scaler in self._scalers]
        return {"0.gradient scale": sorted(scales)} if scales else {}

    # What the script calls.

    def forward_begins(
        self, model: nn.Module | None, samples: int | None, tokens: int | None
    ) -> None:
        """Notes the size of the batch that a trained model gets, None for a function; ends the step
        of a script without an optimizer if a backward pass came before."""
        if self._open.passes and self.steps_by_itself and self._measures.detects_steps():
            self._measures.steps_detected([self._take_open()])
        for sizes, size in zip(self._sizes, (samples, tokens), strict=True):
            if size is not None:
                sizes.add(size)
        self._num_forwards[model] += 1

    def _backward_begins(self, tensors: Any, caller: Any) -> None:
        if not self._measures.detects_steps():
            return
        place = self._place(scripts_frame(caller))
        if self._active and not self._still_makes_step(caller):
            self._open.passes.pop(place, None)  # for the step that has failed
        latest = BackwardPasses(self._loss(tensors), *self._take_sizes())
        known = self._open.passes.get(place)
        if known is None:
            self._open.passes[place] = latest
        elif not self._active:  # otherwise an optimizer evaluates its closure once more
            known.add(latest)

    def _take_sizes(self) -> tuple[int | None, int | None]:
        """Samples and tokens of a backward pass; None unless all forward passes before it agree. An
        agent gets one state to act, and others to learn from."""
        is_spread = max(self._num_forwards.values(), default=0) > MOST_FORWARDS
        samples, tokens = (
            next(iter(sizes)) if len(sizes) == 1 and not is_spread else None
            for sizes in self._sizes
        )
        for seen in (*self._sizes, self._num_forwards):
            seen.clear()
        return samples, tokens

    def _still_makes_step(self, frame: FrameType | None) -> bool:
        """Whether this frame is within the step of the outermost active optimizer. If not, the step
        has raised an exception: forgets it."""
        while frame is not None and frame is not self._active[0][1]:
            frame = frame.f_back
        if frame is None:
            self._active.clear()
        return frame is not None

    def _place(self, frame: Any) -> str:
        """`file:line` of a frame; written once, because that takes as long as a small layer."""
        key = frame.f_code.co_filename, frame.f_lineno
        if key not in self._places:
            self._places[key] = place_of(frame)
        return self._places[key]

    def _loss(self, tensors: Any) -> Tensor | None:
        """The sum of the losses that go backward, before they were scaled."""
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        losses = [getattr(root, UNSCALED, root).detach() for root in roots]
        if not losses or any(loss.numel() != 1 for loss in losses):
            return None
        total = functools.reduce(torch.add, losses)
        return total.clone() if self._copies_losses else total

    def _optimizer_begins(self, optimizer: Optimizer, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        place = sys._getframe(1)
        if self._active:
            self._still_makes_step(place)
        self._active.append((optimizer, place))

    def _optimizer_ends(self, optimizer: Optimizer, *_: object) -> None:
        if torch.compiler.is_compiling():
            return
        begun = [active for active, _ in self._active]
        if optimizer in begun:
            del self._active[begun.index(optimizer) :]
        if not self._active and self._measures.detects_steps():
            self._stepped(self._optimizers.number(optimizer))

    def _stepped(self, number: int) -> None:
        is_first = number not in self._num_steps
        self._num_steps[number] = self._num_steps.get(number, 0) + 1
        part = self._take_open()
        self._parts.append(part)
        sizes = self._optimizers.sizes() if len(self._num_steps) > 1 else {}
        awaits = self._ends.is_learning and self._optimizers.has_others(self._num_steps)
        ended = self._ends.stepped(number, sizes, awaits_others=awaits)
        if not ended and self._ends.is_learning:
            part.num_marks, part.is_marked = 1, True
            self._measures.part_made()
        if is_first:
            self._measures.optimizer_begins()
        self._end_parts(ended)

    def end(self) -> None:
        """Ends the last steps, when the script is over."""
        if not self._measures.detects_steps():
            return
        self._end_parts(self._ends.remaining(self._optimizers.sizes()))
        if self.steps_by_itself and self._open.passes:
            self._measures.steps_detected([self._take_open()])

    def _take_open(self) -> DetectedStep:
        step, self._open = self._open, DetectedStep()
        step.learning_rate = self._optimizers.learning_rate()
        return step

    def _end_parts(self, sizes: Sequence[int]) -> None:
        steps = []
        for size in sizes:
            parts, self._parts = self._parts[:size], self._parts[size:]
            steps.append(functools.reduce(DetectedStep.then, parts))
        if steps:
            self._measures.steps_detected(steps)

    # Where it listens.

    @contextmanager
    def listening(self) -> Iterator[None]:
        backward, scale, step = torch.autograd.backward, GradScaler.scale, GradScaler.step

        @functools.wraps(backward)
        def noted_backward(tensors: Any, *args: Any, **kwargs: Any) -> None:
            # A backward pass within another one computes a checkpointed part again.
            if self._is_going_back or torch.compiler.is_compiling():
                return backward(tensors, *args, **kwargs)
            self._backward_begins(tensors, sys._getframe(1))
            self._is_going_back = True
            try:
                backward(tensors, *args, **kwargs)
            finally:
                self._is_going_back = False

        @functools.wraps(scale)
        def noted_scale(scaler: GradScaler, outputs: Any) -> Any:
            scaled = scale(scaler, outputs)
            if isinstance(outputs, Tensor) and scaled is not outputs:
                self._scalers.add(scaler)
                setattr(scaled, UNSCALED, outputs.detach())
            return scaled

        @functools.wraps(step)
        def noted_step(scaler: GradScaler, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = sum(self._num_steps.values())
            result = step(scaler, optimizer, *args, **kwargs)
            # Gradients that are not finite: the scaler has left the step out.
            if before == sum(self._num_steps.values()) and isinstance(optimizer, Optimizer):
                self._optimizer_ends(optimizer)
            return result

        handles = [
            register_optimizer_step_pre_hook(self._optimizer_begins),
            register_optimizer_step_post_hook(self._optimizer_ends),
        ]
        torch.autograd.backward = noted_backward
        GradScaler.scale = noted_scale  # type: ignore[method-assign, assignment]
        GradScaler.step = noted_step  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            torch.autograd.backward = backward
            GradScaler.scale, GradScaler.step = scale, step  # type: ignore[method-assign]
            for handle in handles:
                handle.remove()


def batch_size(
    arguments: tuple[tuple[Any, ...], Mapping[str, Any]],
) -> tuple[int | None, int | None]:
    """Samples and tokens that a model gets: the first dimension of the first tensor of at least two
    dimensions, and the number of its whole numbers if it has two."""
    args, kwargs = arguments
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.ndim > 1:
            is_tokens = value.ndim == 2 and value.dtype in (torch.int32, torch.int64)
            return len(value), value.numel() if is_tokens else None
    return None, None
