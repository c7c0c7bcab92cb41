"""Lightning's `Trainer`, under both names of the package."""

import functools
import math
from types import ModuleType
from typing import Any

from runner.worker.script.batch_sizes import StepSize, num_samples
from runner.worker.script.session import ScriptSession

PREFIXES = ("validation_", "valid_", "val_")


def attach(module: ModuleType, session: ScriptSession) -> None:
    """Has every trainer made from now on tell the session."""
    make = module.Trainer.__init__
    callback_class: Any = type("Told", (_Told, module.Callback), {})

    @functools.wraps(make)
    def init(trainer: Any, *args: Any, **kwargs: Any) -> None:
        make(trainer, *args, **kwargs)
        trainer.callbacks.append(callback_class(session))

    module.Trainer.__init__ = init


class _Told:
    """What a callback of the library tells the session."""

    def __init__(self, session: ScriptSession) -> None:
        self._session = session
        self._size = StepSize()
        self._steps_done = 0
        self._num_evaluated = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps_done = trainer.global_step
        if not self._session.has_compiled_besides(pl_module):
            # What Lightning compiles of a module that somebody compiled.
            pl_module.training_step = self._session.compile(pl_module.training_step, pl_module, {})
        self._session.trained_by("lightning", None, _num_steps(trainer))

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        if loss is not None and trainer.accumulate_grad_batches > 1:
            loss = loss.clone()  # from a CUDA graph, the next micro-batch would overwrite it
        self._size.add(loss, batch)
        if trainer.global_step > self._steps_done:
            self._steps_done = trainer.global_step
            if self._session.step_is_last(*self._size.take()):
                trainer.should_stop = True

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        self._num_evaluated = 0
        self._session.evaluate(True)

    def on_validation_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *place: int
    ) -> None:
        self._num_evaluated += num_samples(batch) or 0

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            found, count = _metrics(trainer.callback_metrics), self._num_evaluated or None
            self._session.evaluated("validation", count, found)
        self._session.evaluate(False)


def _num_steps(trainer: Any) -> int:
    steps = trainer.estimated_stepping_batches
    return 0 if math.isinf(steps) else int(steps)


def _metrics(found: Any) -> dict[str, Any]:
    """What was logged of the validation, by names that other scripts use as well."""
    names = {"acc": "accuracy"}
    told = {}
    for name, value in found.items():
        for prefix in PREFIXES:
            if name.startswith(prefix):
                short = name.removeprefix(prefix)
                told[names.get(short, short)] = value
    return told
