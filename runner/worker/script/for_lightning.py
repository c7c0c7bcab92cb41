"""Lightning's `Trainer`, under both names of the package."""

import functools
import inspect
import math
from pathlib import Path
from types import ModuleType
from typing import Any

from breakeven.runner.worker.script.batch_sizes import StepSize, num_samples
from breakeven.runner.worker.script.session import ScriptSession

NAME = "lightning"
PREFIXES = ("validation_", "valid_", "val_")


def attach(module: ModuleType, session: ScriptSession) -> None:
    """Has every trainer made from now on tell the session."""
    make = module.Trainer.__init__
    callback_class: Any = type("Told", (_Told, module.Callback), {})

    @functools.wraps(make)
    def init(trainer: Any, *args: Any, **kwargs: Any) -> None:
        make(trainer, *args, **kwargs)
        # Before those that save: the step is over first.
        trainer.callbacks.insert(0, callback_class(session))
        trainer.fit = _going_on(trainer, trainer.fit, session)
        trainer.save_checkpoint = _told_of(trainer, trainer.save_checkpoint, session)

    module.Trainer.__init__ = init


def _going_on(trainer: Any, fit: Any, session: ScriptSession) -> Any:
    """Trains on from where an earlier attempt at the run saved, if it did."""
    given = inspect.signature(fit)
    make_epochs = trainer.fit_loop.run

    def make_epochs_as_then() -> Any:
        # At once: it draws an order of samples before it says that training begins.
        session.resuming.put_back_random_numbers()
        return make_epochs()

    @functools.wraps(fit)
    def going_on(*args: Any, **kwargs: Any) -> Any:
        saved = session.resuming.checkpoint_of(NAME)
        bound = given.bind(*args, **kwargs)
        if saved is not None:
            bound.arguments["ckpt_path"] = str(saved)
            trainer.fit_loop.run = make_epochs_as_then
        return fit(*bound.args, **bound.kwargs)

    return going_on


def _told_of(trainer: Any, save: Any, session: ScriptSession) -> Any:
    @functools.wraps(save)
    def told_of(filepath: Any, weights_only: bool | None = None, *args: Any, **kwargs: Any) -> None:
        # In the middle of an epoch it does not know how to find the next sample.
        is_whole = not weights_only and trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        file, step = Path(filepath).absolute(), trainer.global_step
        with session.checkpointing(NAME, file, step, is_whole=is_whole):
            save(filepath, weights_only, *args, **kwargs)

    return told_of


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
        self._session.trained_by(NAME, None, _num_steps(trainer))

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
