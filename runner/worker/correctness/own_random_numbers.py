"""Checks whether a backend draws its own random numbers, and compares it in other ways if so.

Losses can be compared step by step only if runs draw the same numbers. For a backend that draws
others, three checks follow the training, outside of all timings: compare steps with many draws with
and without a compiler (`redraw`); compare a training without dropout; and count whether each
dropout drops as many numbers as it should (`DropoutProbes`).

All steps of `redraw` start from the state at the end of training and see the same samples, so they
differ only in their random numbers. A correct backend's weight changes have the same distribution
as those without a compiler. The distances between all changes are recorded.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from breakeven.runner.specs.arm_fields import CONTROL_PERTURBATION
from breakeven.runner.worker.compiler.compile_with_backend import leave_alone, make_compiler
from breakeven.runner.worker.context import ParallelModel, RunContext
from breakeven.runner.worker.data.splits import MicroBatch
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.model.losses import Objective, find_logits
from breakeven.runner.worker.model.transformers_models import perturb
from breakeven.runner.worker.random_state import step_seed
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.optimizers import LearningRate, make_optimizers
from breakeven.runner.worker.step.stepping import (
    MixedPrecision,
    Step,
    StepMaker,
    StepResult,
    uncompiled_step,
)

NUM_STEPS = 40
"""Most steps of a rehearsal. A band needs ten steps more than it judges."""
Form = Literal["eager", "perturbed", "compiled"]
MAX_REASON = 2000
ROUNDING = 1e-4
"""Relative difference of losses below which random numbers are equal."""
UNLIKE = 10.0
"""Answers are random if their distance with two seeds is more than so many times the distance with
one seed, which is not always 0: some kernels add in any order."""
NUM_FIRST = 2
"""Draws of each kind to find out whether the backend draws the same numbers as eager."""
NUM_DRAWS = 12
"""Draws of each kind if it does not (docs/decisions.md)."""
SAME_SHARE = 0.25
"""Numbers are the same if squared distances to eager's step with the same seed are below this share
of the distances between eager's steps with different seeds."""
MAX_COMPARED = 4096
"""Compared elements of a tensor, evenly spread."""
SEED_OFFSET = 7_919
ROOM = 2
"""Required free memory for a copy on the device, in multiples of the copy's size."""
MAX_ELEMENTS = 65_536
"""Most numbers of a trial in one step, which uses as many input samples as fit."""
SILENCED = ("dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
"""Forms of dropout that are disabled, but not tried."""
ATTENTION_LOGIT = 64.0
"""Distance of one key's logit above all others, which then share e^-64 of the attention."""


@dataclass(frozen=True, kw_only=True)
class DropoutPlace:
    """One dropout in a model's forward pass."""

    operation: Literal["dropout", "attention"]
    p: float
    """The share of numbers that it must drop."""


class DropoutProbes:
    """Disables dropout, and tries each dropout on known numbers instead.

    While this is active, torch's dropout functions return their input, so training drops nothing.
    Instead, each function drops known numbers in a trial: ones for dropout; for attention, a query
    that attends to only one key, whose value is one. All results are 0 or 1 / (1 - p), whatever the
    model computes. The backend compiles each trial in place of its dropout.

    First `survey` finds the dropouts of a forward pass. Add `term` to the loss of every step: it is
    0, and its gradient, which reaches only the probes, shows whether the backward pass drops the
    same numbers.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.places: list[DropoutPlace] = []
        self._surveys = False
        self._gates: list[Tensor] = []
        self._draws: list[Tensor] = []
        self._terms: list[Tensor] = []
        # Not F.dropout, because a captured graph's code would find the replacement there.
        self._dropout: Callable[..., Tensor] = torch.dropout
        self._attention: Callable[..., Tensor] = F.scaled_dot_product_attention

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replaces the dropout functions."""
        replacements: dict[str, Any] = dict.fromkeys(SILENCED, lambda input, *_, **__: input)
        replacements["dropout"] = self._try_dropout
        replacements["scaled_dot_product_attention"] = self._try_attention
        with mock.patch.multiple(F, **replacements):
            yield

    def survey(self, forward: Callable[[], bool]) -> bool:
        """Finds the dropouts of a forward pass, which draw nothing; returns its result."""
        self._surveys = True
        try:
            return forward()
        finally:
            self._surveys = False
            # Separate leaf tensors, because compilers fail on parts of one tensor.
            self._gates = [
                torch.ones((), device=self._device, requires_grad=True) for _ in self.places
            ]

    def term(self) -> Tensor:
        """The term to add to the loss; called once in each forward pass."""
        terms, self._terms = self._terms, []
        total = torch.stack(terms).sum()
        return total - total.detach()

    def take(self, loss_scale: float) -> Tensor:
        """The draws since the last call, (places, 5), in double precision: count of numbers, count
        of zeros, sum, sum of squares, and the sum of squares according to the gradient.

        Gradients are divided by `loss_scale`.
        """
        draws = torch.stack(self._draws).double().reshape(-1, len(self.places), 4).sum(0).cpu()
        self._draws.clear()
        backward = [0.0 if g.grad is None else g.grad.item() / loss_scale for g in self._gates]
        for gate in self._gates:
            gate.grad = None
        return torch.cat([draws, torch.tensor(backward, dtype=torch.float64)[:, None]], dim=1)

    def _try_dropout(
        self, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0:
            return input
        if self._surveys:
            self.places.append(DropoutPlace(operation="dropout", p=p))
            return input
        samples = input[: _num_samples(input)] if input.dim() > 1 else input
        ones = torch.ones_like(samples.detach()) * self._gate().to(input.dtype)
        self._watch(self._dropout(ones, p, True))
        return input

    def _try_attention(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **rest: Any,
    ) -> Tensor:
        output = self._attention(query, key, value, attn_mask, 0.0, is_causal, **rest)
        if dropout_p == 0:
            return output
        if self._surveys:
            self.places.append(DropoutPlace(operation="attention", p=dropout_p))
            return output
        size = _num_samples(query)
        if attn_mask is not None and attn_mask.dim() == query.dim():
            attn_mask = attn_mask[:size]
        query, key, value = (tensor[:size].detach() for tensor in (query, key, value))
        scale = rest.get("scale") or query.shape[-1] ** -0.5
        length = (ATTENTION_LOGIT / scale / query.shape[-1]) ** 0.5
        first = (torch.arange(key.shape[-2], device=key.device) == 0).to(key.dtype)
        ones = torch.ones_like(value) * self._gate().to(value.dtype)
        tried = self._attention(
            torch.full_like(query, length),
            torch.full_like(key, length) * first[:, None],
            ones,
            attn_mask,
            dropout_p,
            is_causal,
            **rest,
        )
        self._watch(tried[..., 0])
        return output

    def _gate(self) -> Tensor:
        """The gate of this place, which separates its gradient from the others."""
        return self._gates[len(self._draws) % len(self.places)]

    def _watch(self, drawn: Tensor) -> None:
        forward = drawn.detach().float()
        self._terms.append((drawn.float() * forward).sum())
        zeros = (forward.abs() < 0.5).float().sum()
        tried = torch.full_like(zeros, forward.numel())
        self._draws.append(torch.stack([tried, zeros, forward.sum(), forward.square().sum()]))


def _num_samples(tensor: Tensor) -> int:
    """Number of samples, the first dimension, in a trial."""
    return max(1, MAX_ELEMENTS // max(1, tensor[0].numel()))


@dataclass(frozen=True, kw_only=True)
class Redraws:
    """Results of all steps: first without a compiler, then with it, in the order of seeds."""

    losses: list[float]
    distances: dict[str, list[float]]
    """By parameter, squared distances between the changes of pairs of steps: (0, 1), (0, 2), ...,
    (1, 2), and so on."""
    changes: dict[str, float]
    """By parameter, mean squared size of the changes by steps without a compiler."""

    @property
    def num_draws(self) -> int:
        return len(self.losses) // 2

    @property
    def same_seed(self) -> float:
        """Mean squared distance, over all tensors, between steps of both kinds with equal seeds."""
        count = self.num_draws
        return self._mean(lambda i, j: j == i + count)

    @property
    def other_seeds(self) -> float:
        """Mean squared distance between steps without a compiler with different seeds."""
        count = self.num_draws
        return self._mean(lambda i, j: j < count)

    @property
    def draws_the_same(self) -> bool:
        """Whether the backend draws the same numbers as without a compiler."""
        return self.same_seed <= SAME_SHARE * self.other_seeds

    def _mean(self, wanted: Callable[[int, int], bool]) -> float:
        size = len(self.losses)
        pairs = [(i, j) for i in range(size) for j in range(i + 1, size)]
        places = [place for place, pair in enumerate(pairs) if wanted(*pair)]
        sums = [sum(distances[place] for place in places) for distances in self.distances.values()]
        return sum(sums) / len(places)


class TensorState:
    """A copy of parameters, buffers and optimizer states. It is restored in place, where compiled
    code and captured graphs expect the tensors. This happens dozens of times, so the copy lies on
    their device if memory suffices."""

    def __init__(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], device: Device
    ) -> None:
        memories = [entry for optimizer in optimizers for entry in optimizer.state.values()]
        self._tensors = [*model.parameters(), *model.buffers()]
        self._tensors += [t for entry in memories for t in entry.values() if isinstance(t, Tensor)]
        has_room = device.free_bytes >= ROOM * sum(tensor.nbytes for tensor in self._tensors)
        self._values = [
            tensor.detach().to(tensor.device if has_room else "cpu", copy=True)
            for tensor in self._tensors
        ]

    @torch.no_grad()
    def restore(self) -> None:
        for tensor, value in zip(self._tensors, self._values, strict=True):
            tensor.copy_(value)


def redraw(
    model: nn.Module,
    state: TensorState,
    step: Callable[[], Tensor],
    compiled_step: Callable[[], Tensor],
    *,
    seed: int,
    num_draws: int,
) -> Redraws:
    """Makes steps with different seeds, and restores the state after each step."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    before = _sampled(parameters)
    losses: list[Tensor] = []
    changes: list[dict[str, Tensor]] = []
    for make_step in (step, compiled_step):
        for draw in range(num_draws):
            torch.manual_seed(seed + SEED_OFFSET + draw)
            losses.append(make_step().detach().clone())
            after = _sampled(parameters)
            changes.append({name: after[name] - before[name] for name in parameters})
            state.restore()
    stacked = {
        name: torch.stack([change[name] for change in changes]).cpu().double()
        for name in parameters
    }
    return Redraws(
        losses=torch.stack(losses).float().tolist(),
        distances={name: _distances(vectors) for name, vectors in stacked.items()},
        changes={
            name: float(vectors[:num_draws].square().sum(1).mean())
            for name, vectors in stacked.items()
        },
    )


def _sampled(parameters: dict[str, nn.Parameter]) -> dict[str, Tensor]:
    return {
        name: parameter.detach().flatten()[:: -(-parameter.numel() // MAX_COMPARED)].float().clone()
        for name, parameter in parameters.items()
    }


def _distances(changes: Tensor) -> list[float]:
    """Squared distances of all pairs in their order, with four digits to save space."""
    rows, columns = torch.triu_indices(len(changes), len(changes), offset=1)
    squares = (changes[rows] - changes[columns]).square().sum(1)
    return [float(f"{square:.4g}") for square in squares.tolist()]


class RandomNumbersCheck:
    """Checks a backend's random numbers; made while the model still has its initial weights."""

    def __init__(
        self,
        context: RunContext,
        parallel: ParallelModel,
        objective: Objective,
        inference: Inference,
    ) -> None:
        """Ranks with all weights are checked together; each draws its own numbers."""
        self._spec, self._device, self._log = context.spec, context.device, context.log
        self._inference = inference
        self._parallel = parallel
        self._model = parallel.model
        self._objective = objective
        self._precision = MixedPrecision(context.experiment.training, self._device.torch_device)
        self._initial: dict[str, Tensor] | None = None
        self.first_loss: Tensor | None = None
        """Loss of the training's first step; None if another process made this step."""
        if context.experiment.has_dropout:
            weights = parallel.model.state_dict()
            self._initial = {name: tensor.to("cpu", copy=True) for name, tensor in weights.items()}

    def run(
        self,
        step: Step,
        optimizers: Sequence[torch.optim.Optimizer],
        samples: Callable[[int], list[MicroBatch]],
    ) -> None:
        """Makes all checks with the compiled `step` and each step's `samples`, and records the
        results; an error does not fail the run. Changes weights and optimizers."""
        try:
            batches = samples(0)
            if not self._draws(batches):
                return
            inference_draws = self._inference_draws(batches[0])
            same = self._redraw(step, optimizers, batches, inference_draws)
            if not same and self._initial is not None:
                self._rehearse(self._initial, samples)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:MAX_REASON]
            self._log.append("random_numbers", error=reason)

    def _draws(self, batches: Sequence[MicroBatch]) -> bool:
        """Whether a forward pass without a compiler draws random numbers."""
        before = self._random_state()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), self._precision.autocast():
            self._model(**batches[0].inputs)
        after = self._random_state()
        return self._any(any(not torch.equal(before[name], after[name]) for name in before))

    def _any(self, answer: bool) -> bool:
        """Whether the answer is True on any rank."""
        return any(self._parallel.group.gather(answer))

    def _inference_draws(self, batch: MicroBatch) -> bool | None:
        """Whether the compiled model's answers to the same samples depend on the seed; None if the
        run never evaluates the compiled model, so that no code exists."""
        experiment = self._spec.experiment
        if experiment.evaluates == "never" or not experiment.evaluation.compiled:
            return None
        answers = []
        self._model.eval()
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            with torch.no_grad():
                answers.append(find_logits(self._inference.forward(batch.inputs)).float().clone())
        self._model.train()
        first, same_seed, other_seed = answers
        by_chance = (first - same_seed).abs().max()
        return self._any(bool((first - other_seed).abs().max() > UNLIKE * by_chance))

    def _random_state(self) -> dict[str, Tensor]:
        return {"cpu": torch.get_rng_state(), **self._device.random_state()}

    def _redraw(
        self,
        step: Step,
        optimizers: Sequence[torch.optim.Optimizer],
        batches: Sequence[MicroBatch],
        inference_draws: bool | None,
    ) -> bool:
        """Whether the backend draws the same numbers as without a compiler."""
        state = TensorState(self._model, optimizers, self._device)
        eager = uncompiled_step(
            self._model,
            self._objective,
            optimizers,
            self._precision,
            self._spec.experiment,
            self._parallel,
        )

        def drawn(num_draws: int) -> Redraws:
            redraws = redraw(
                self._model,
                state,
                lambda: eager(batches).loss,
                lambda: step(batches).loss,
                seed=self._parallel.seed,
                num_draws=num_draws,
            )
            losses = self._parallel.group.averaged(redraws.losses)
            # Ranks decide by these numbers, so they must be equal to the last bit.
            return self._parallel.group.share(replace(redraws, losses=losses))

        redraws = drawn(NUM_FIRST)
        same = redraws.draws_the_same and not self._first_call_differs(
            state, lambda: eager(batches), lambda: step(batches)
        )
        if not same:
            redraws = drawn(NUM_DRAWS)
            self._log.extend(
                "redraw",
                [
                    {"tensor": name, "change": redraws.changes[name], "distances": distances}
                    for name, distances in redraws.distances.items()
                ],
            )
        self._log.append(
            "random_numbers",
            same=same,
            num_draws=redraws.num_draws,
            same_seed=redraws.same_seed,
            other_seeds=redraws.other_seeds,
            loss_by_draw=redraws.losses,
            inference_draws=inference_draws,
        )
        return same

    def _first_call_differs(
        self,
        state: TensorState,
        eager: Callable[[], StepResult],
        compiled: Callable[[], StepResult],
    ) -> bool:
        """Whether the training's first step drew other numbers than the same code draws now. Some
        backends draw numbers while they trace a graph, and train from other weights ever after."""
        if self.first_loss is None or self._initial is None:
            return False
        first = self.first_loss.item()
        expected, again = (self._first_step(state, make_step) for make_step in (eager, compiled))
        rounding = abs(again - expected) + ROUNDING * abs(expected)
        return self._any(abs(first - expected) > UNLIKE * rounding)

    def _first_step(self, state: TensorState, step: Callable[[], StepResult]) -> float:
        """The loss of the training's first step, repeated; afterwards everything is as before."""
        assert self._initial is not None
        self._model.load_state_dict(self._initial)
        self._device.seed(step_seed(self._parallel.seed, 0))
        loss = step().loss.item()
        state.restore()
        return loss

    def _rehearse(
        self, initial: dict[str, Tensor], samples: Callable[[int], list[MicroBatch]]
    ) -> None:
        """Repeats a short training without dropout, from the `initial` weights, in three forms:
        without a compiler, the same from weights perturbed like a control's, and with newly
        compiled code of the backend. Writes the losses of each form and the draws of its dropouts.
        If the model draws random numbers besides dropout, only writes this reason."""
        probes = DropoutProbes(self._device.torch_device)
        with probes.active():
            if probes.survey(lambda: self._draws(samples(0))):
                self._log.append("rehearsal", reason="it draws more than dropout does")
                return
            for form in get_args(Form) if probes.places else ():
                self._model.load_state_dict(initial)
                losses, drawn = self._train(form, probes, samples)
                self._log.append("rehearsal", form=form, loss_by_step=losses)
                if form != "perturbed":
                    self._log.extend("dropout", _rows(probes, drawn), compiled=form == "compiled")

    def _train(
        self, form: Form, probes: DropoutProbes, samples: Callable[[int], list[MicroBatch]]
    ) -> tuple[list[float], Tensor]:
        """Trains in a form; returns the losses and the sums of all draws."""
        experiment = self._spec.experiment
        self._model.zero_grad()
        if form == "perturbed":
            perturb(self._model, CONTROL_PERTURBATION, experiment.training.seed)
        precision = MixedPrecision(experiment.training, self._device.torch_device)
        step, rate = self._prepare(form, probes, precision)
        losses: list[Tensor] = []
        drawn = torch.zeros(len(probes.places), 5, dtype=torch.float64)
        torch.manual_seed(self._parallel.seed)
        with torch.compiler.set_stance("default" if form == "compiled" else "force_eager"):
            for index in range(min(NUM_STEPS, experiment.num_steps)):
                if self._spec.arm.captures_cuda_graphs:
                    torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
                losses.append(step(samples(index)).loss.clone())
                drawn += probes.take(precision.scaler.get_scale())
                rate.step_done()
        parallel = self._parallel
        total = torch.stack(parallel.group.gather(drawn)).sum(0)
        return parallel.group.averaged(torch.stack(losses).float().tolist()), total

    def _prepare(
        self, form: Form, probes: DropoutProbes, precision: MixedPrecision
    ) -> tuple[Step, LearningRate]:
        """A step with new optimizers and newly compiled code, and its learning rate."""
        training, arm = self._spec.experiment.training, self._spec.arm
        device = self._device

        def objective(output: Any, labels: Tensor) -> tuple[Tensor, Tensor | None]:
            loss, terms = self._objective(output, labels)
            return loss + probes.term(), terms

        optimizers = make_optimizers(
            training,
            self._model,
            device.torch_device,
            capturable=device.captures_graphs,
            form=arm.optimizer if form == "compiled" else None,
        )
        rate = LearningRate(training, self._spec.experiment.num_steps, optimizers)
        maker = StepMaker(
            self._model, objective, optimizers, precision, training, parallel=self._parallel
        )
        if form != "compiled":
            return maker.make("forward", leave_alone), rate
        torch._dynamo.reset()
        return maker.make(arm.scope, make_compiler(arm)), rate


def _rows(probes: DropoutProbes, drawn: Tensor) -> Iterator[dict[str, Any]]:
    for index, (place, numbers) in enumerate(zip(probes.places, drawn.tolist(), strict=True)):
        tried, zeros, total, squares, backward = numbers
        yield {
            "number": index,
            **asdict(place),
            "tried": int(tried),
            "zeros": int(zeros),
            "sum": total,
            "squares": squares,
            "backward": backward,
        }
