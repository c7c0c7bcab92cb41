"""A training that tries a compiler on its own steps and keeps what is faster.

`_life` is the order of everything, and waits at each `yield` for the end of the training's next
step. Steps end with the optimizer's. Code is compiled beside the training alone, in a comparison of
both ways: a step of the training only runs what was compiled and compared before, or else itself.
"""

import atexit
import sys
from collections.abc import Callable, Generator
from time import perf_counter
from typing import Any

import torch
import torch._dynamo
from torch import Tensor, nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook
from torch.utils._pytree import tree_flatten

from breakeven.runner.protocol.states import RunState
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.texts import duration
from breakeven.runner.worker.auto.both_ways import BothWays
from breakeven.runner.worker.auto.costs import Costs, usual_costs
from breakeven.runner.worker.auto.receipt import Receipt, try_receipt
from breakeven.runner.worker.auto.time_limit import TooLong, limited
from breakeven.runner.worker.auto.trial import Trial, Way
from breakeven.runner.worker.auto.untouched import QuickState
from breakeven.runner.worker.compiler.compile_with_backend import compile_arguments, traceable
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.device.device_kinds import device_class

WARM_UP_STEPS = 3
FIRST_BLOCKS = 3
BLOCK_SECONDS, FEWEST_STEPS = 0.5, 4
"""A block takes about so long, and has at least so many steps."""
BUDGET = 0.02
"""Share of the planned time that blocks of the slower way may take, about twice as much in all."""
CHECK_EVERY = 1000
"""Steps between two comparisons of a compiled training, or more, so that they take at most the
following share of its time."""
CHECK_SHARE = 0.002
LIMIT_OF_EXPECTED, LEAST_LIMIT = 10.0, 60.0
"""A comparison, compiling included, ends after this multiple of the expected time, in seconds."""
NEW_SHAPES, NEW_SHARE, MAX_SHAPES = 3, 0.1, 4
"""Shapes that were never compared are, after so many calls and at this share of all calls; at most
so many times."""

Steps = Generator[None, None, None]


class GivesUp(Exception):
    """The training stays uncompiled; the message says why."""


class AutoTraining:
    """Decides for each training call of a model whether compiled code computes it."""

    def __init__(
        self,
        model: nn.Module,
        arm: Arm,
        steps: int | None,
        costs: Costs | None = None,
        max_compile_seconds: float | None = None,
    ) -> None:
        self._model, self._arm, self._planned = model, arm, steps
        self._costs, self._limit = costs, max_compile_seconds
        call = traceable(model)
        self._plain: Callable[..., Any] = model._call_impl
        # Only comparisons compile; steps run what is compiled for their inputs, or else the model.
        self._compiling = torch.compile(call, **compile_arguments(arm))
        self._compiled = torch._dynamo.run(call)
        self._is_open = False
        self._device: Device | None = None
        self._ways: BothWays | None = None
        self._quick: QuickState | None = None
        self._way: Way = "uncompiled"
        self._check: str = ""
        """The comparison that the next call makes: `first`, `again`; empty for none."""
        self._why_not: str | None = None
        """Why the training must not go on compiled."""
        self._shapes: set[Any] = set()
        self._num_shapes = self._num_calls = self._num_new = 0
        self._was_called = False
        self._optimizer: int | None = None
        self._parameters = {id(parameter) for parameter in model.parameters()}
        self.step = 0
        """Finished steps of the training."""
        self._begun = perf_counter()
        self._first_check_seconds = self._check_seconds = 0.0
        self._num_checks = 0
        self._compiled_from = self._compiled_until = sys.maxsize
        """The steps between which compiled code computes all."""
        self._saved_per_step = 0.0
        """Seconds that a compiled step saves."""
        self._receipt: Receipt | None = None
        self._life_of_training = self._life()
        next(self._life_of_training)
        self._hook = register_optimizer_step_post_hook(self._on_optimizer_step)
        model._compiled_call_impl = self
        atexit.register(self.close)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the model, compiled or not."""
        if torch.compiler.is_compiling() or not (self._model.training and torch.is_grad_enabled()):
            return self._plain(*args, **kwargs)
        self._was_called = True
        if not self._is_open:
            self._open()
        if self._check:
            self._compare(args, kwargs)
        if self._way == "uncompiled" or self._why_not is not None:
            return self._plain(*args, **kwargs)
        if self._num_shapes < MAX_SHAPES:
            self._look_at_shapes(args, kwargs)
        return self._guarded(args, kwargs)

    # The model's side: calls.

    def _open(self) -> None:
        """Gets to know the model at its first call: only now it is where it trains."""
        self._is_open = True
        try:
            self._get_to_know(next(self._model.parameters()))
        except Exception as error:  # An error here is none of the training.
            self._why_not = f"Breakeven failed: {_first_lines(error)}"

    def _get_to_know(self, parameter: Tensor) -> None:
        self._device = device_class(parameter.device.type)(parameter.device)
        self._ways = BothWays(self._model, self._plain, self._compiling, self._device)
        self._why_not = _why_untried(self._model)
        self._costs = self._costs or usual_costs(self._model, parameter.device.type)
        self._receipt = try_receipt(self._model, self._arm, self._planned, self._device, self._say)

    def _compare(self, args: Any, kwargs: Any) -> None:
        """Compares both ways of computing this call, beside the training."""
        assert self._ways is not None and self._costs is not None and self._device is not None
        is_first, self._check = self._check == "first", ""
        begin = perf_counter()
        limit = self._limit or max(LEAST_LIMIT, LIMIT_OF_EXPECTED * self._costs.compile_seconds)
        try:
            with limited(limit):
                wrong = self._ways.compare(args, kwargs, is_first=is_first)
            self._why_not = wrong and f"the compiled model is wrong: {wrong}"
        except TooLong:
            self._why_not = f"compiling took longer than {duration(limit)}"
        except Exception as error:
            self._why_not = f"compiling failed: {_first_lines(error)}"
            self._device.free_memory()
        seconds = perf_counter() - begin
        if is_first:
            self._first_check_seconds = seconds
            if self._receipt is not None:
                self._receipt.compiled(self.step, seconds)
        else:
            self._check_seconds += seconds
            self._num_checks += 1
        self._shapes.add(_shapes(args, kwargs))

    def _guarded(self, args: Any, kwargs: Any) -> Any:
        """The compiled call. If it fails, the uncompiled one from the same state."""
        if self._quick is None:
            assert self._device is not None
            self._quick = QuickState(self._device, [*self._model.buffers()])
        self._quick.keep()
        try:
            return self._compiled(*args, **kwargs)
        except Exception as error:
            self._quick.restore()
            self._why_not = f"a compiled step failed: {_first_lines(error)}"
            return self._plain(*args, **kwargs)

    def _look_at_shapes(self, args: Any, kwargs: Any) -> None:
        """Compares shapes that were never compared, if they are frequent."""
        self._num_calls += 1
        if _shapes(args, kwargs) in self._shapes:
            return
        self._num_new += 1
        if self._num_new >= NEW_SHAPES and self._num_new > NEW_SHARE * self._num_calls:
            self._num_shapes += 1
            self._num_new = self._num_calls = 0
            self._check = "again"
            self._compare(args, kwargs)

    @property
    def computes_compiled(self) -> bool:
        """Whether compiled code computes the steps now."""
        return self._way == "compiled" and self._why_not is None

    # The side of the training: steps.

    def _on_optimizer_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if torch.compiler.is_compiling() or not self._was_called:
            return
        if self._optimizer is None and any(
            id(parameter) in self._parameters
            for group in optimizer.param_groups
            for parameter in group["params"]
        ):
            self._optimizer = id(optimizer)
        if id(optimizer) != self._optimizer:
            return
        self._was_called = False
        self.step += 1
        try:
            next(self._life_of_training)
        except StopIteration:
            self._detach()
        except Exception as error:  # An error here is none of the training.
            self._say(f"Breakeven failed, the training goes on uncompiled: {_first_lines(error)}")
            self._detach()

    def _life(self) -> Steps:
        try:
            yield from self._try()
        except GivesUp as reason:
            self._way, self._compiled_until = "uncompiled", self.step
            self._say(f"the training goes on uncompiled: {reason}")
            self._decided(str(reason))

    def _decided(self, why: str, trial: Trial | None = None) -> None:
        if self._receipt is not None:
            self._receipt.decided(
                step=self.step,
                way=self._way,
                why=why,
                ratio=None if trial is None else trial.ratio,
                pairs=0 if trial is None else len(trial.ratios),
                compile_seconds=self._first_check_seconds,
                check_seconds=self._check_seconds,
            )

    def _try(self) -> Steps:
        yield from self._steps(WARM_UP_STEPS)
        seconds = []
        for _ in range(FIRST_BLOCKS):
            seconds.append((yield from self._block("uncompiled", FEWEST_STEPS, 0)))
        uncompiled = min(seconds)
        yield from self._wait_until_it_pays(uncompiled)
        length = max(FEWEST_STEPS, round(BLOCK_SECONDS / uncompiled))
        yield from self._compared("first")
        # A second time with other weights, before compiled code computes any step.
        yield from self._block("uncompiled", FEWEST_STEPS, 0)
        yield from self._compared("again")
        trial = Trial(2 * BUDGET * self._planned_seconds(uncompiled))
        while (decision := trial.decision()) is None:
            yield from self._pair(trial, length)
        if decision == "uncompiled":
            raise GivesUp(f"compiled steps take {trial.ratio:.2f} times as long")
        self._say(
            f"from step {self.step} on compiled: such steps take {trial.ratio:.2f} times as long "
            f"({len(trial.ratios)} pairs of blocks)"
        )
        yield from self._stay_compiled(trial, uncompiled)

    def _wait_until_it_pays(self, uncompiled: float) -> Steps:
        """Waits until compiling is expected to pay; of a training of unknown length as much is
        expected to follow as was."""
        assert self._costs is not None
        needed = self._costs.pays_from()
        if self._planned is not None:
            left = (self._planned - self.step) * uncompiled
            if left < needed:
                raise GivesUp(
                    f"compiling takes about {duration(self._costs.compile_seconds)} and pays if "
                    f"more than {duration(needed)} of training are left, here "
                    f"{duration(max(0.0, left))} ({self._costs.source})"
                )
        while self._planned is None and perf_counter() - self._begun < needed:
            yield from self._step()

    def _planned_seconds(self, uncompiled: float) -> float:
        if self._planned is None:
            return 2 * (perf_counter() - self._begun)
        return self._planned * uncompiled

    def _pair(self, trial: Trial, length: int) -> Steps:
        """Two neighbouring blocks, in turn one or the other first."""
        is_reversed = len(trial.ratios) % 2 == 1
        order: tuple[Way, Way] = ("uncompiled", "compiled")
        seconds = {}
        for way in reversed(order) if is_reversed else order:
            seconds[way] = yield from self._block(way, length, len(trial.ratios) + 1)
        trial.add(seconds["uncompiled"], seconds["compiled"], length)

    def _stay_compiled(self, trial: Trial, uncompiled: float) -> Steps:
        """Compiled steps, with a comparison from time to time."""
        self._way, self._compiled_from = "compiled", self.step
        self._saved_per_step = uncompiled * (1 - trial.ratio)
        self._decided("compiled steps are faster", trial)
        while True:
            step_seconds = uncompiled * trial.ratio
            usual = self._check_seconds / max(1, self._num_checks)
            yield from self._steps(max(CHECK_EVERY, round(usual / CHECK_SHARE / step_seconds)))
            yield from self._compared("again")

    def _compared(self, check: str) -> Steps:
        """Waits for a call that is computed both ways."""
        self._check = check
        while self._check:
            yield from self._step()

    def _block(self, way: Way, length: int, number: int) -> Generator[None, None, float]:
        """Some steps in one way, in the round of this number; returns the seconds of each."""
        assert self._device is not None
        self._way = way
        self._device.synchronize()
        first, begin = self.step, perf_counter()
        yield from self._steps(length)
        self._device.synchronize()
        seconds = perf_counter() - begin
        if self._receipt is not None:
            self._receipt.block(way, number, first, length, seconds)
        return seconds / length

    def _steps(self, count: int) -> Steps:
        for _ in range(count):
            yield from self._step()

    def _step(self) -> Steps:
        yield
        if self._why_not is not None:
            raise GivesUp(self._why_not)

    def _detach(self) -> None:
        """Leaves the model as it was."""
        self._hook.remove()
        self._model._compiled_call_impl = None

    def close(self) -> None:
        """Records how the training ended."""
        if self.step == 0:
            self._say("no optimizer of torch has trained the model, so nothing was tried")
        elif self._first_check_seconds:
            self._say(self._balance())
        if self._receipt is not None:
            error = getattr(sys, "last_value", None)
            state, reason = RunState.FINISHED, "finished"
            if isinstance(error, KeyboardInterrupt):
                state, reason = RunState.CANCELLED, "stopped by Ctrl-C"
            elif error is not None:
                state, reason = RunState.FAILED, _first_lines(error)
            self._receipt.close(state, reason)

    def _balance(self) -> str:
        """What the compiler saved or cost, in words."""
        trying = self._first_check_seconds + self._check_seconds
        steps = max(0, min(self.step, self._compiled_until) - self._compiled_from)
        saved = steps * self._saved_per_step - trying
        against = f"{'saved' if saved > 0 else 'cost'} about {duration(abs(saved))}"
        return (
            f"{steps:,} of {self.step:,} steps were compiled for good; against an "
            f"uncompiled training this {against}, {duration(trying)} of compiling and comparing "
            "included"
        )

    def _say(self, sentence: str) -> None:
        print(f"breakeven.auto: {sentence}", file=sys.stderr, flush=True)  # noqa: T201


def _why_untried(model: nn.Module) -> str | None:
    """Why both ways of a step cannot be computed beside the training."""
    distributed = torch.distributed
    is_rank = distributed.is_available() and distributed.is_initialized()
    if is_rank and distributed.get_world_size() > 1:
        return "on several ranks all would have to decide together, which they cannot yet"
    for name, module in model.named_modules():
        hooks = (
            *module._forward_hooks.values(),
            *module._forward_pre_hooks.values(),
            *module._backward_hooks.values(),
            *module._backward_pre_hooks.values(),
        )
        if any(not str(getattr(hook, "__module__", "")).startswith("torch.") for hook in hooks):
            return f"a comparison would call the hooks of {name or type(module).__name__} again"
    return None


def _shapes(args: Any, kwargs: Any) -> Any:
    """What compiled code depends on: kinds and shapes of tensors; other values only if hashable."""
    leaves, structure = tree_flatten((args, kwargs))
    parts = tuple(
        (leaf.dtype, leaf.device, tuple(leaf.shape)) if isinstance(leaf, Tensor) else type(leaf)
        for leaf in leaves
    )
    return parts, str(structure)


def _first_lines(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"[:300]
