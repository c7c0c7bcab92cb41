"""Whether a backend draws its own random numbers, and what is left to compare if it does.

Losses can be compared step by step only where the same numbers are drawn. A backend that draws
others is asked three things after its training, when nothing is timed any more: what its steps come
to with many draws, beside those without a compiler (`redraws`); whether it computes the same where
dropout lets everything through (`rehearsal`); and whether each dropout drops as much as it should
(`dropout_probes`).
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from breakeven.runner.specs.experiment import RunSpec
from breakeven.runner.worker.data.batches import MicroBatch
from breakeven.runner.worker.device.base import Device
from breakeven.runner.worker.event_log import EventLog
from breakeven.runner.worker.model.losses import Objective, logits_of
from breakeven.runner.worker.randomness.dropout_probes import DropoutProbes
from breakeven.runner.worker.randomness.redraws import NUM_DRAWS, NUM_FIRST, Redraws, State, redraw
from breakeven.runner.worker.randomness.rehearsal import Rehearsal
from breakeven.runner.worker.ranks.together import Together
from breakeven.runner.worker.step.inference import Inference
from breakeven.runner.worker.step.stepping import MixedPrecision, Step
from breakeven.runner.worker.step.uncompiled import uncompiled_step

MAX_REASON_CHARACTERS = 2000
UNLIKE = 10.0
"""How many times further than with one seed answers must lie apart with two to have been drawn:
some kernels add in any order."""


class RandomNumbersCheck:
    """Made before the first step, because a rehearsal starts where training starts."""

    def __init__(
        self,
        spec: RunSpec,
        together: Together,
        objective: Objective,
        inference: Inference,
        device: Device,
        log: EventLog,
    ) -> None:
        """Ranks that have all weights each are asked together; each draws numbers of its own."""
        self._spec = spec
        self._inference = inference
        self._together = together
        self._model = model = together.model
        self._objective = objective
        self._device = device
        self._log = log
        self._precision = MixedPrecision(spec.experiment.training, device.torch_device)
        self._rehearsal: Rehearsal | None = None
        if spec.experiment.has_dropout:
            initial = {n: tensor.to("cpu", copy=True) for n, tensor in model.state_dict().items()}
            self._rehearsal = Rehearsal(spec, together, initial, objective, device, log)

    def run(
        self,
        step: Step,
        optimizers: Sequence[torch.optim.Optimizer],
        samples: Callable[[int], list[MicroBatch]],
    ) -> None:
        """Asks and writes down the answers. What goes wrong here takes nothing from the run.

        `step` is the compiled one that was trained with; `samples` are those of a step of training.
        Weights and optimizers are not as they were afterwards.
        """
        try:
            batches = samples(0)
            if not self._draws(batches):
                return
            inference_draws = self._inference_draws(batches[0])
            same = self._redraw(step, optimizers, batches, inference_draws)
            if not same and self._rehearsal is not None:
                self._rehearse(self._rehearsal, samples)
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"[:MAX_REASON_CHARACTERS]
            self._log.append("random_numbers", error=reason)

    def _draws(self, batches: Sequence[MicroBatch]) -> bool:
        """Whether a forward without a compiler draws random numbers."""
        before = self._random_state()
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), self._precision.autocast():
            self._model(**batches[0].inputs)
        after = self._random_state()
        return self._any(any(not torch.equal(before[name], after[name]) for name in before))

    def _any(self, answer: bool) -> bool:
        """Whether it is so on any rank."""
        return any(self._together.group.gather(answer))

    def _inference_draws(self, batch: MicroBatch) -> bool | None:
        """Whether the compiled model answers the same samples otherwise with another seed; None
        where it is not asked to answer compiled, so that there is no code for it yet."""
        experiment = self._spec.experiment
        if experiment.evaluates == "never" or not experiment.evaluation.compiled:
            return None
        answers = []
        self._model.eval()
        for seed in (0, 0, 1):
            torch.manual_seed(seed)
            with torch.no_grad():
                answers.append(logits_of(self._inference.forward(batch.inputs)).float().clone())
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
        """Whether the backend draws the numbers that are drawn without a compiler."""
        state = State(self._model, optimizers, self._device)
        eager = uncompiled_step(
            self._model,
            self._objective,
            optimizers,
            self._precision,
            self._spec.experiment,
            self._together,
        )

        def without_compiler() -> Tensor:
            return eager(batches).loss

        def compiled() -> Tensor:
            return step(batches).loss

        def drawn(num_draws: int) -> Redraws:
            found = redraw(
                self._model,
                state,
                without_compiler,
                compiled,
                seed=self._together.seed,
                num_draws=num_draws,
            )
            losses = self._together.averaged(found.losses)
            # All ranks have the same weights; what follows must be the same to the last bit.
            return self._together.group.share(replace(found, losses=losses))

        found = drawn(NUM_FIRST)
        if not found.draws_the_same:
            found = drawn(NUM_DRAWS)
            self._log.extend(
                "redraw",
                [
                    {"tensor": name, "change": found.changes[name], "distances": distances}
                    for name, distances in found.distances.items()
                ],
            )
        self._log.append(
            "random_numbers",
            same=found.draws_the_same,
            num_draws=found.num_draws,
            same_seed=found.same_seed,
            other_seeds=found.other_seeds,
            loss_by_draw=found.losses,
            inference_draws=inference_draws,
        )
        return found.draws_the_same

    def _rehearse(self, rehearsal: Rehearsal, samples: Callable[[int], list[MicroBatch]]) -> None:
        """Only where no random number is left once dropout is silent."""
        probes = DropoutProbes(self._device.torch_device)
        with probes.active():
            if probes.survey(lambda: self._draws(samples(0))):
                self._log.append("rehearsal", reason="it draws more than dropout does")
            elif probes.places:
                rehearsal.run(probes, samples)
