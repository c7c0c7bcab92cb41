"""Trains step by step under a compiler and without one, and compares each step.

Before each step the compiled model gets the weights and the optimizer's state of the model without
a compiler. Rounding cannot add up, and the first wrong step shows, however late it is.
"""

import copy
import traceback
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from torch.utils.weak import WeakTensorKeyDictionary

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.worker.compiler.compile_with_backend import (
    Compile,
    compile_blocks,
    make_compiler,
)
from breakeven.runner.worker.correctness.batch_tensors import BASELINE, uncompiled
from breakeven.runner.worker.data.splits import EpochBatches, MicroBatch, Split
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.investigation.trial_outcomes import (
    NOT_FINITE,
    PASSES,
    ROUNDING,
    Outcome,
    Tensors,
    are_close,
    first_difference,
    is_plausible,
    raised,
)
from breakeven.runner.worker.model.loaded_workload import Workload
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.transformers_models import perturb
from breakeven.runner.worker.random_state import step_seed
from breakeven.runner.worker.session import apply_precision
from breakeven.runner.worker.step.optimizers import LearningRate, make_optimizers
from breakeven.runner.worker.step.stepping import MixedPrecision, StepMaker


@dataclass
class _Call:
    """A module whose forward pass is in progress."""

    name: str
    last: str = ""
    """Name of the layer that it called last."""


class Watch:
    """Hooks on all modules of a model; use it as a context around one step."""

    def __init__(self, model: nn.Module) -> None:
        self.place: str | None = None
        """Where the first number that is not finite comes from, in words."""
        self.phase: str | None = None
        """`forward pass` or `backward pass`; None for data and weights."""
        self._model = model
        self._names = {module: _named(name, module) for name, module in model.named_modules()}
        self._calls: list[_Call] = []
        self._users: MutableMapping[Tensor, list[str]] = WeakTensorKeyDictionary()
        """The code that last used each tensor of the forward pass, as a list of one text: the
        backward pass of this code computes the tensor's gradient. The dictionary keeps no tensor
        alive."""
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> "Watch":
        for name, weight in self._model.named_parameters():
            if _is_bad(weight):
                self._note(f"weight {name} before the step")
        for module in self._names:
            self._handles += [
                module.register_forward_pre_hook(self._before, with_kwargs=True),
                module.register_forward_hook(self._after),
                *(
                    weight.register_hook(self._checked(self._names[module]))
                    for weight in module.parameters(recurse=False)
                    if weight.requires_grad
                ),
            ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        name = self._names[module]
        inputs = _tensors((args, kwargs))
        if not self._calls:
            if any(map(_is_bad, inputs)):
                self._note("the model's inputs, which are data")
        elif any(map(_is_bad, inputs)):
            self._note(f"code of {self._calls[-1].name} before {name}", "forward pass")
        for tensor in inputs:
            self._used(tensor, name)
        self._calls.append(_Call(name))

    def _after(self, module: nn.Module, args: Any, output: Any) -> None:
        call = self._calls.pop()
        after = f"code of {call.name} after {call.last}" if call.last else call.name
        outputs = _tensors(output)
        if any(map(_is_bad, outputs)):
            self._note(after, "forward pass")
        user = "the loss function"
        if self._calls:
            self._calls[-1].last = call.name
            user = f"code of {self._calls[-1].name} after {call.name}"
        for tensor in outputs:
            self._used(tensor, user)

    def _used(self, tensor: Tensor, user: str) -> None:
        """Records the code that uses a tensor; a hook checks the tensor's gradient once."""
        if tensor.requires_grad:
            known = self._users.get(tensor)
            if known is None:
                known = self._users[tensor] = [user]

                def look(gradient: Tensor, user: list[str] = known) -> None:
                    self._look(gradient, user[0])

                self._handles.append(tensor.register_hook(look))  # type: ignore[no-untyped-call]
            known[0] = user

    def _checked(self, place: str) -> Callable[[Tensor], None]:
        return lambda gradient: self._look(gradient, place)

    def _look(self, gradient: Tensor, place: str) -> None:
        if not gradient.isfinite().all():
            self._note(place, "backward pass")

    def _note(self, place: str, phase: str | None = None) -> None:
        if self.place is None:
            self.place, self.phase = place, phase


def _named(name: str, module: nn.Module) -> str:
    return f"layer {name} ({type(module).__name__})" if name else f"model {type(module).__name__}"


def _tensors(values: Any) -> list[Tensor]:
    # Outputs of some models are data classes, which torch's trees do not know.
    values = vars(values) if hasattr(values, "__dataclass_fields__") else values
    return [value for value in torch.utils._pytree.tree_leaves(values) if isinstance(value, Tensor)]


def _is_bad(tensor: Tensor) -> bool:
    """Whether a number is not finite; masks of attention, which have no gradient, may be -inf."""
    if not tensor.is_floating_point():
        return False
    fine = tensor.detach().isfinite()
    if not tensor.requires_grad:
        fine |= tensor.detach() == -torch.inf
    return not bool(fine.all())


class Model:
    """A copy of the workload's model with an optimizer, which trains single steps."""

    def __init__(
        self,
        experiment: ExperimentSpec,
        workload: Workload,
        device: Device,
        arm: Arm,
        compiler: Compile | None = None,
        *,
        is_double: bool = False,
    ) -> None:
        """`compiler` replaces the arm's own."""
        training = experiment.training
        if is_double:
            training = replace(training, precision="float32", scaler_options={})
        self._trains = experiment.trains
        model = copy.deepcopy(workload.model).train(self._trains)
        self.model = model = model.double() if is_double else model
        self._device, self._seed = device, experiment.training.seed
        self._apply_precision = partial(apply_precision, experiment, arm, device)
        self._captures = arm.captures_cuda_graphs
        self.optimizers = make_optimizers(
            training,
            self.model,
            device.torch_device,
            capturable=device.captures_graphs,
            form=arm.optimizer,
        )
        self.rate = LearningRate(training, experiment.training_steps, self.optimizers)
        self._precision = MixedPrecision(training, device.torch_device)
        if arm.scope == "blocks" and arm.backend is not None:
            compile_blocks(self.model, arm, compiler)
        maker = StepMaker(
            self.model,
            Objective(training, replace(workload, model=self.model)),
            self.optimizers,
            self._precision,
            training,
            like_harness=experiment.steps_like_harness,
        )
        compile = compiler or make_compiler(arm)
        self._step = maker.make(arm.scope, compile)

        def answer(batch: dict[str, Tensor]) -> Any:
            return model(**batch)

        is_compiled = arm.scope != "blocks" and not self._trains
        self._answer = compile(answer) if is_compiled else answer

    def step(self, number: int, batches: list[MicroBatch]) -> Tensors:
        """Makes step `number` and returns what it computed: loss, updates of weights, buffers and
        the optimizer's state; of a forward pass the outputs."""
        before = {name: p.detach().clone() for name, p in self.model.named_parameters()}
        self._apply_precision()
        self._device.seed(step_seed(self._seed, number))
        if self._captures:
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        if not self._trains:
            return self._outputs(batches)
        result = self._step(batches)
        tensors: Tensors = {("loss", "loss"): result.loss.detach().clone()}
        if result.terms is not None:
            tensors["loss", "terms"] = result.terms.detach().clone()
        tensors |= self._state_of_optimizers()
        for name, parameter in self.model.named_parameters():
            tensors["update", name] = parameter.detach() - before[name]
        for name, buffer in self.model.named_buffers():
            if buffer.is_floating_point():
                tensors["buffer", name] = buffer.detach().clone()
        return tensors

    @torch.no_grad()
    def _outputs(self, batches: list[MicroBatch]) -> Tensors:
        with self._precision.autocast():
            answers = [self._answer(batch.inputs) for batch in batches]
        tensors = torch.utils._pytree.tree_leaves(answers)
        return {
            ("output", str(place)): tensor.clone()
            for place, tensor in enumerate(tensors)
            if isinstance(tensor, Tensor) and tensor.is_floating_point()
        }

    def _state_of_optimizers(self) -> Tensors:
        names: dict[Tensor, str] = {
            parameter: name for name, parameter in self.model.named_parameters()
        }
        return {
            (f"optimizer's {key} of", names[parameter]): value.detach().clone()
            for optimizer in self.optimizers
            for parameter, state in optimizer.state.items()
            for key, value in state.items()
            if isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1
        }

    @torch.no_grad()
    def load(self, other: "Model") -> None:
        """Takes weights, buffers, the optimizers' state and rates, and the scale of the loss; in
        place, so that compiled code and captured graphs stay valid."""
        own_tensors = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        other_tensors = {
            **dict(other.model.named_parameters()),
            **dict(other.model.named_buffers()),
        }
        for name, tensor in own_tensors.items():
            tensor.copy_(other_tensors[name])
        for optimizer, source in zip(self.optimizers, other.optimizers, strict=True):
            _load_optimizer(optimizer, source)
        self._precision.scaler.load_state_dict(other._precision.scaler.state_dict())


def _load_optimizer(optimizer: torch.optim.Optimizer, source: torch.optim.Optimizer) -> None:
    has_state = bool(optimizer.state) or not source.state
    if not has_state:
        optimizer.load_state_dict(copy.deepcopy(source.state_dict()))
        return
    for parameter, other in zip(_parameters(optimizer), _parameters(source), strict=True):
        state, given = optimizer.state[parameter], source.state.get(other, {})
        for key, value in given.items():
            if isinstance(value, Tensor) and isinstance(state.get(key), Tensor):
                state[key].copy_(value)
            else:
                state[key] = copy.deepcopy(value)
    for group, given_group in zip(optimizer.param_groups, source.param_groups, strict=True):
        if isinstance(group["lr"], Tensor):
            group["lr"].copy_(given_group["lr"])
        else:
            group["lr"] = given_group["lr"]


def _parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Lockstep:
    """Repeats steps of an experiment's training under other settings of the compiler."""

    def __init__(
        self, experiment: ExperimentSpec, workload: Workload, device: Device, tolerance: float
    ) -> None:
        """The workload's model is on the device already; it never changes."""
        self._experiment = experiment
        self._model = partial(Model, experiment, workload, device)
        self._split: Split = workload.data.train.to(device.torch_device)
        self._batches: EpochBatches | None = None
        self._tolerance = tolerance

    def baseline(self, steps: int) -> Outcome:
        """Trains without a compiler; the outcome of a training that fails by itself."""
        model, first = self._model(BASELINE), None
        for number in range(steps):
            try:
                result = model.step(number, self.batches(number))
            except Exception as error:  # Any error of the model is a result here.
                return raised(error, traceback.format_exc(), number)
            if first is None and not _is_finite(result, "loss", "update"):
                first = number
            if not _is_finite(result, "loss"):
                return self._not_finite(number if first is None else first, number)
            model.rate.step_done()
        return PASSES

    def _not_finite(self, first: int, last: int) -> Outcome:
        """Repeats the steps in which a loss came to be not finite, to see where that begins."""
        model = self.model_before(first)
        for number in range(first, last + 1):
            with Watch(model.model) as watch:
                result = model.step(number, self.batches(number))
            place, phase = watch.place, watch.phase
            if place is None and not _is_finite(result, "loss"):
                place = "the loss function"
            if place is None and not _is_finite(result, "update"):
                place, phase = "the optimizer", "update of the weights"
            if place is not None:
                break
            model.rate.step_done()
        return Outcome(kind="raises", step=number, error=NOT_FINITE, quantity=phase, tensor=place)

    def compare(self, arm: Arm, first: int, last: int, compiler: Compile | None = None) -> Outcome:
        """Compares the steps from `first` to `last` (without it); the first wrong one counts.

        A compiled step is compared with the step of the same settings without a compiler, so that
        what these settings round to is not the compiler's fault.
        """
        own = BASELINE if arm.backend is None else uncompiled(arm)
        plain = self.model_before(first)
        before = self._model(BASELINE)
        same = None if own == BASELINE else self._model(own)
        try:
            compiled = self._model(arm, compiler)
        except Exception as error:  # Some backends fail before they see a graph.
            return raised(error, traceback.format_exc(), first)
        for number in range(first, last):
            batches = self.batches(number)
            compiled.load(plain)
            before.load(plain)
            if same is not None:
                same.load(plain)
            expected = plain.step(number, batches)
            if same is not None:
                expected = same.step(number, batches)
            plain.rate.step_done()
            try:
                result = compiled.step(number, self._for_compiler(batches, arm))
                # Reads the tensors, because a device reports an error of a kernel only then.
                are_equal = are_close(result, expected, self._tolerance)
            except Exception as error:  # Any error of a backend is a result here.
                return raised(error, traceback.format_exc(), number)
            if not are_equal:
                outcome = self._judge(result, expected, before, own, number)
                if outcome is not None:
                    return replace(outcome, step=number)
        return PASSES

    def model_before(self, step: int) -> Model:
        """A model that was trained up to the step without a compiler."""
        model = self._model(BASELINE)
        for number in range(step):
            model.step(number, self.batches(number))
            model.rate.step_done()
        return model

    def batches(self, step: int) -> list[MicroBatch]:
        """The micro-batches of a step."""
        epoch, window = divmod(step, self._experiment.steps_per_epoch)
        if self._batches is None or self._batches.epoch != epoch:
            training = self._experiment.training
            self._batches = EpochBatches(self._split, training, epoch, symbolic_size=False)
        return self._batches.window(window)

    def _for_compiler(self, batches: list[MicroBatch], arm: Arm) -> list[MicroBatch]:
        """Copies with batch sizes that are symbols, if the training has such."""
        # Copies, so that a backend that writes into its inputs spoils no other step.
        copies = _mapped(batches, torch.clone)
        is_symbolic = arm.backend is not None and arm.dynamic is not False
        if is_symbolic and self._experiment.training.last_batch == "dynamic":
            for tensor in chain.from_iterable(batch.inputs.values() for batch in copies):
                torch._dynamo.mark_dynamic(tensor, 0)
        return copies

    def _judge(
        self, result: Tensors, expected: Tensors, before: Model, plain: Arm, number: int
    ) -> Outcome | None:
        """The first tensor that differs by more than rounding explains; None if all agree.

        The step without a compiler is repeated in double precision, and once more as it is.
        """
        again = self._repeated_step(before, number, plain)
        reference = self._repeated_step(before, number, is_double=True)
        if not is_plausible(reference, expected):
            reference = self._repeated_step(before, number, rounding=ROUNDING)
        outcome = first_difference(result, expected, reference, self._tolerance)
        if outcome is None or not again:
            return outcome
        own = first_difference(again, expected, reference, self._tolerance)
        return replace(outcome, is_unstable=own is not None)

    def _repeated_step(
        self,
        before: Model,
        number: int,
        arm: Arm = BASELINE,
        *,
        is_double: bool = False,
        rounding: float = 0.0,
    ) -> Tensors:
        """The step without a compiler; empty if it cannot be repeated."""
        try:
            model = self._model(arm, is_double=is_double)
            model.load(before)
            perturb(model.model, rounding, number)
            batches = self.batches(number)
            return model.step(number, _doubled(batches) if is_double else batches)
        except Exception:  # Some models lack kernels, and some devices lack memory for this.
            return {}


def _is_finite(tensors: Tensors, *quantities: str) -> bool:
    return all(
        bool(tensor.isfinite().all()) for name, tensor in tensors.items() if name[0] in quantities
    )


def _doubled(batches: list[MicroBatch]) -> list[MicroBatch]:
    return _mapped(
        batches, lambda tensor: tensor.double() if tensor.is_floating_point() else tensor.clone()
    )


def _mapped(batches: list[MicroBatch], change: Callable[[Tensor], Tensor]) -> list[MicroBatch]:
    return [
        MicroBatch(
            {name: change(tensor) for name, tensor in batch.inputs.items()}, batch.share.clone()
        )
        for batch in batches
    ]
