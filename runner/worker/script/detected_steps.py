"""Finds the steps of a script that marks none, by what every training with torch calls.

A step ends with a step of the script's optimizers; its losses are the tensors on which `backward`
is called. A script that makes no optimizer changes its weights itself, between a backward pass and
the next forward pass. Nothing here waits for the device or draws a random number. What the script
calls within a step only notes what happened; the work is done when the step ends.
"""

import functools
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet, ref

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

Forward = tuple[nn.Module | None, int | None, int | None]
"""A call of a trained model, None for a function, with the samples and tokens of its batch."""
MOST_FORWARDS = 2
"""Calls of a model before a backward pass with a known batch, as of a judge of real and made
samples. With more the batch is spread over them, as over the moves of a game."""
UNSCALED = "_breakeven_unscaled"
"""Attribute of a loss that `GradScaler` has scaled: the loss before."""


@dataclass(slots=True)
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


class Backward(NamedTuple):
    """A backward pass, as it was noted."""

    place: str
    loss: Tensor | None
    forwards: list[Forward]
    """Calls of trained models since the pass before."""


@dataclass(slots=True)
class DetectedStep:
    """A step of the training, or the part of it that ends with a step of one optimizer."""

    parts: list[list[Backward]]
    """The backward passes of each part."""
    learning_rate: float | Tensor | None = None
    num_marks: int = 0
    """Parts whose end the clock has marked already."""
    is_marked: bool = False
    """Whether the clock has marked the end of the last part."""

    def then(self, later: "DetectedStep") -> "DetectedStep":
        """This part and a later one."""
        return DetectedStep(
            self.parts + later.parts,
            self.learning_rate,
            self.num_marks + later.num_marks,
            later.is_marked,
        )

    def passes(self) -> dict[str, BackwardPasses]:
        """By place in the script, in the order of the first pass at each. The losses of a part
        count where no earlier part has any."""
        passes: dict[str, BackwardPasses] = {}
        for part in self.parts:
            passes = {**_by_place(part), **passes} if passes else _by_place(part)
        order = dict.fromkeys(place for part in self.parts for place, *_ in part)
        return {place: passes[place] for place in order}


def _by_place(part: list[Backward]) -> dict[str, BackwardPasses]:
    passes: dict[str, BackwardPasses] = {}
    for place, loss, forwards in part:
        latest = BackwardPasses(loss, *_batch_of(forwards))
        if place in passes:
            passes[place].add(latest)
        else:
            passes[place] = latest
    return passes


StepEnd = BackwardPasses | DetectedStep
"""What is known when a step ends: what the script said, or what was noted."""


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
        self._backwards: list[Backward] = []
        self._forwards: list[Forward] = []
        """Calls of trained models since the last backward pass."""
        self._active: list[tuple[Optimizer, FrameType]] = []
        """Optimizers that make a step now, each within the previous one, and where they do."""
        self._have_stepped: set[int] = set()
        """The numbers of optimizers that have made steps."""
        self._num_steps = 0
        """Steps of all optimizers."""
        self._only: ref[Optimizer] | None = None
        """The optimizer of which each step is known to end a step of the training."""
        self._scalers: WeakSet[GradScaler] = WeakSet()
        """Those that have scaled a loss."""
        self._is_going_back = False
        self._places: dict[tuple[int, int], tuple[str, CodeType]] = {}
        """`file:line` by the `id` of a code object and the place in it; keeps the code, so that no
        other one gets its `id`."""
        self.has_trained = False
        """Whether an optimizer has stepped since the last step ended."""

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
        self, model: nn.Module | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Notes the batch that a trained model gets, None for a function; ends the step of a script
        without an optimizer if a backward pass came before."""
        if self._backwards and self.steps_by_itself and self._measures.detects_steps():
            self._measures.steps_detected([self._take_open()])
        self._forwards.append((model, *batch_size(args, kwargs)))

    def _backward_begins(self, tensors: Any, caller: FrameType) -> None:
        place = self._place(scripts_frame(caller))
        forwards, self._forwards = self._forwards, []
        if self._active:
            others = [known for known in self._backwards if known.place != place]
            if not self._still_makes_step(caller):
                self._backwards = others  # without those for the step that has failed
            elif len(others) < len(self._backwards):
                return  # an optimizer evaluates its closure once more
        self._backwards.append(Backward(place, self._loss(tensors), forwards))

    def _still_makes_step(self, frame: FrameType | None) -> bool:
        """Whether this frame is within the step of the outermost active optimizer. If not, the step
        has raised an exception: forgets it."""
        while frame is not None and frame is not self._active[0][1]:
            frame = frame.f_back
        if frame is None:
            self._active.clear()
        return frame is not None

    def _place(self, frame: FrameType) -> str:
        """`file:line` of a frame; found once, because that takes as long as a small layer."""
        key = id(frame.f_code), frame.f_lasti
        if key not in self._places:
            self._places[key] = place_of(frame), frame.f_code
        return self._places[key][0]

    def _loss(self, tensors: Any) -> Tensor | None:
        """The sum of the losses that go backward, before they were scaled."""
        if isinstance(tensors, Tensor) and tensors.numel() == 1:
            loss = getattr(tensors, UNSCALED, tensors).detach()
            return loss.clone() if self._copies_losses else loss
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        if not roots or any(root.numel() != 1 for root in roots):
            return None
        losses = [getattr(root, UNSCALED, root).detach() for root in roots]
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
        self.has_trained = True
        active = self._active
        if active and active[-1][0] is optimizer:
            active.pop()
        while any([begun is optimizer for begun, _ in active]):  # those within it have failed
            active.pop()
        if active or not self._measures.detects_steps():
            return
        self._num_steps += 1
        if self._only is not None and self._only() is optimizer:
            self._measures.steps_detected([self._take_open()])
        else:
            self._stepped(optimizer)

    def _stepped(self, optimizer: Optimizer) -> None:
        """Learns that an optimizer has made a step, which may end one of the training."""
        number = self._optimizers.number(optimizer)
        is_first = number not in self._have_stepped
        self._have_stepped.add(number)
        part = self._take_open()
        self._parts.append(part)
        awaits = self._ends.is_learning and self._optimizers.has_others(self._have_stepped)
        ended = self._ends.stepped(number, self._optimizers.sizes, awaits_others=awaits)
        if not ended:
            part.learning_rate = self._optimizers.learning_rate()
            if self._ends.is_learning:
                part.num_marks, part.is_marked = 1, True
                self._measures.part_made()
        if is_first:
            self._measures.optimizer_begins()
        self._only = ref(optimizer) if self._ends.cycle == (number,) else None
        self._end_parts(ended)

    def end(self) -> None:
        """Ends the last steps, when the script is over."""
        if not self._measures.detects_steps():
            return
        self._end_parts(self._ends.remaining(self._optimizers.sizes))
        if self.steps_by_itself and self._backwards:
            self._measures.steps_detected([self._take_open()])

    def _take_open(self) -> DetectedStep:
        backwards, self._backwards = self._backwards, []
        return DetectedStep([backwards])

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
            if (
                self._is_going_back
                or torch.compiler.is_compiling()
                or not self._measures.detects_steps()
            ):
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
            before = self._num_steps
            result = step(scaler, optimizer, *args, **kwargs)
            # Gradients that are not finite: the scaler has left the step out.
            if before == self._num_steps and isinstance(optimizer, Optimizer):
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


def batch_size(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[int | None, int | None]:
    """Samples and tokens that a model gets: the first dimension of the first tensor of at least two
    dimensions, and the number of its whole numbers if it has two."""
    for value in (*args, *kwargs.values()):
        if isinstance(value, Tensor) and value.ndim > 1:
            is_tokens = value.ndim == 2 and value.dtype in (torch.int32, torch.int64)
            return len(value), value.numel() if is_tokens else None
    return None, None


def _batch_of(forwards: Sequence[Forward]) -> tuple[int | None, int | None]:
    """Samples and tokens of a backward pass; None unless all forward passes before it agree. An
    agent gets one state to act, and others to learn from."""
    if len(forwards) > MOST_FORWARDS:
        counts = Counter(model for model, _, _ in forwards)
        if max(counts.values()) > MOST_FORWARDS:
            return None, None
    return _agreed([samples for _, samples, _ in forwards]), _agreed(
        [tokens for _, _, tokens in forwards]
    )


def _agreed(counts: Sequence[int | None]) -> int | None:
    """The only count; None if there are several or none."""
    known = set(counts) - {None}
    return known.pop() if len(known) == 1 else None
