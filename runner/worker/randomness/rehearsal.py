"""A short training without dropout, from the weights that training began with.

It is done three times: without a compiler, the same from weights as perturbed as a control's, and
under the backend, whose code is compiled anew for it. So losses can be compared step by step, and
what each dropout draws beside them (`dropout_probes`).
"""

from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.specs.variants import CONTROL_PERTURBATION
from breakeven.runner.worker.callbacks import Hooks, TrainingState
from breakeven.runner.worker.compiler.compiling import leave_alone, make_compiler
from breakeven.runner.worker.data.batches import MicroBatch
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.losses import Objective
from breakeven.runner.worker.model.models import perturb
from breakeven.runner.worker.randomness.dropout_probes import DropoutProbes
from breakeven.runner.worker.ranks.together import Together
from breakeven.runner.worker.step.optimizers import make_optimizers
from breakeven.runner.worker.step.schedules import LearningRate
from breakeven.runner.worker.step.stepping import MixedPrecision, Step, StepMaker

NUM_STEPS = 40
"""At most. A band takes ten steps more than it judges."""
Form = Literal["eager", "perturbed", "compiled"]


class Rehearsal:
    """Repeats the beginning of a run's training without dropout."""

    def __init__(
        self,
        spec: RunSpec,
        together: Together,
        initial: dict[str, Tensor],
        objective: Objective,
        device: Device,
        log: EventLog,
    ) -> None:
        """`initial` are the weights to begin with; dropout is silenced by who calls this."""
        self._spec = spec
        self._together = together
        self._model = together.model
        self._initial = initial
        self._objective = objective
        self._device = device
        self._log = log

    def run(self, probes: DropoutProbes, samples: Callable[[int], list[MicroBatch]]) -> None:
        """Writes the losses of each form, and what its dropouts drew. `samples` are those of a
        step."""
        for form in get_args(Form):
            losses, drawn = self._train(form, probes, samples)
            self._log.append("rehearsal", form=form, loss_by_step=losses)
            if form != "perturbed":
                self._log.extend("dropout", _rows(probes, drawn), compiled=form == "compiled")

    def _train(
        self, form: Form, probes: DropoutProbes, samples: Callable[[int], list[MicroBatch]]
    ) -> tuple[list[float], Tensor]:
        """The losses, and what was drawn in all."""
        experiment = self._spec.experiment
        self._model.load_state_dict(self._initial)
        self._model.zero_grad()
        if form == "perturbed":
            perturb(self._model, CONTROL_PERTURBATION, experiment.training.seed)
        precision = MixedPrecision(experiment.training, self._device.torch_device)
        step, rate = self._prepare(form, probes, precision)
        losses: list[Tensor] = []
        drawn = torch.zeros(len(probes.places), 5, dtype=torch.float64)
        torch.manual_seed(self._together.seed)
        with torch.compiler.set_stance("default" if form == "compiled" else "force_eager"):
            for index in range(min(NUM_STEPS, experiment.num_steps)):
                if self._spec.variant.captures_cuda_graphs:
                    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
                losses.append(step(samples(index)).loss.clone())
                drawn += probes.take(precision.scaler.get_scale())
                rate.step_done()
        together = self._together
        of_all = torch.stack(together.group.gather(drawn)).sum(0)
        return together.averaged(torch.stack(losses).float().tolist()), of_all

    def _prepare(
        self, form: Form, probes: DropoutProbes, precision: MixedPrecision
    ) -> tuple[Step, LearningRate]:
        """A step of new optimizers, which knows nothing of what was compiled before."""
        training, variant, device = (
            self._spec.experiment.training, self._spec.variant, self._device
        )  # fmt: skip

        def objective(output: Any, labels: Tensor) -> tuple[Tensor, Tensor | None]:
            loss, terms = self._objective(output, labels)
            return loss + probes.term(), terms

        optimizers = make_optimizers(
            training, self._model, device.torch_device, capturable=device.captures_graphs
        )
        rate = LearningRate(training, self._spec.experiment.num_steps, optimizers)
        hooks = Hooks([], TrainingState(model=self._model, optimizers=optimizers))
        maker = StepMaker(
            self._model, objective, optimizers, precision, training, hooks, self._together
        )
        if form != "compiled":
            return maker.make("forward", leave_alone), rate
        torch._dynamo.reset()
        return maker.make(variant.scope, make_compiler(variant)), rate


def _rows(probes: DropoutProbes, drawn: Tensor) -> Iterator[dict[str, Any]]:
    for index, (place, numbers) in enumerate(zip(probes.places, drawn.tolist(), strict=True)):
        tried, zeros, total, squares, backward = numbers
        yield {
            "number": index,
            "operation": place.operation,
            "p": place.p,
            "tried": int(tried),
            "zeros": int(zeros),
            "sum": total,
            "squares": squares,
            "backward": backward,
        }
