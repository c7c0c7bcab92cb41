"""Libraries that train a script's model: with these, the script needs no change.

Each library has a function here, which gets the library's module after a script imports it, patches
it to inform the session, and returns what takes the patch away. A new library needs such a function
and an entry in `TRAINERS`.
"""

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from breakeven.runner.worker.script.script_session import ScriptSession

Detach = Callable[[], None]
TRANSFORMERS, LIGHTNING = "transformers.Trainer", "lightning"
"""Names of the libraries in the journal."""
CHECKPOINT_FOLDER = "checkpoint"
"""Prefix of checkpoint folders, as in transformers.trainer_utils."""
NO_METRICS = ("runtime", "samples_per_second", "steps_per_second", "compilation_time", "epoch")
TRANSFORMERS_PREFIX = "eval_"
LIGHTNING_PREFIXES = ("validation_", "valid_", "val_")


class StepSize:
    """Loss, samples and tokens of an optimizer step, summed over its micro-batches."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.loss: Tensor | None = None
        self.samples = 0
        self.tokens = 0

    def add(self, loss: Tensor | None, batch: Any = None) -> None:
        """Adds a micro-batch; `loss` is its share of the step's loss."""
        if loss is not None:
            loss = loss.detach()
            self.loss = loss if self.loss is None else self.loss + loss
        self.samples += num_samples(batch) or 0
        tokens = batch.get("input_ids") if isinstance(batch, Mapping) else None
        self.tokens += tokens.numel() if isinstance(tokens, Tensor) else 0

    def take(self) -> tuple[Tensor | None, int | None, int | None]:
        """Returns loss, samples and tokens of the step, None if unknown; begins the next step."""
        taken = self.loss, self.samples or None, self.tokens or None
        self.clear()
        return taken


def num_samples(batch: Any) -> int | None:
    """Length of the first tensor in a batch; None without one."""
    entries = batch.values() if isinstance(batch, Mapping) else batch
    if isinstance(batch, Tensor) or not hasattr(entries, "__iter__"):
        entries = [batch]
    return next((len(entry) for entry in entries if isinstance(entry, Tensor) and entry.ndim), None)


def attach_transformers(module: ModuleType, session: ScriptSession) -> Detach:
    """Patches `transformers.Trainer` and subclasses such as `Seq2SeqTrainer`."""
    callback_class: Any = type(
        "SessionCallback", (_TransformersCallback, module.TrainerCallback), {}
    )

    def made(trainer: Any) -> None:
        size = StepSize()
        training_step, train = trainer.training_step, trainer.train

        @functools.wraps(training_step)
        def measured(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            loss = training_step(model, inputs, *args, **kwargs)
            size.add(loss, inputs)  # a micro-batch's share of the step's loss
            return loss

        @functools.wraps(train)
        def going_on(resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
            saved = session.resuming.library_checkpoint(TRANSFORMERS)
            return train(resume_from_checkpoint if saved is None else str(saved), *args, **kwargs)

        def place(model: Any, trial: Any, *args: Any, **kwargs: Any) -> tuple[Path, int, bool]:
            step = trainer.state.global_step
            folder = Path(trainer._get_output_dir(trial=trial), f"{CHECKPOINT_FOLDER}-{step}")
            return folder, step, not trainer.args.save_only_model

        trainer.training_step, trainer.train = measured, going_on
        trainer._save_checkpoint = _saving(trainer._save_checkpoint, TRANSFORMERS, session, place)
        trainer.add_callback(callback_class(session, size))

    return _after_making(module.Trainer, made)


def attach_lightning(module: ModuleType, session: ScriptSession) -> Detach:
    """Patches Lightning's `Trainer`, under both names of the package."""
    callback_class: Any = type("SessionCallback", (_LightningCallback, module.Callback), {})

    def made(trainer: Any) -> None:
        fit, make_epochs = trainer.fit, trainer.fit_loop.run

        def make_epochs_as_then() -> Any:
            # Now, because it draws an order of samples before it reports the start of training.
            session.resuming.restore_random_state()
            return make_epochs()

        @functools.wraps(fit)
        def going_on(*args: Any, **kwargs: Any) -> Any:
            saved = session.resuming.library_checkpoint(LIGHTNING)
            bound = inspect.signature(fit).bind(*args, **kwargs)
            if saved is not None:
                bound.arguments["ckpt_path"] = str(saved)
                trainer.fit_loop.run = make_epochs_as_then
            return fit(*bound.args, **bound.kwargs)

        def place(
            filepath: Any, weights_only: bool | None = None, *args: Any, **kwargs: Any
        ) -> tuple[Path, int, bool]:
            # After a resume within an epoch, Lightning cannot find the next sample.
            is_last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
            return Path(filepath), trainer.global_step, not weights_only and is_last

        # Before callbacks that save, so that the step ends first.
        trainer.callbacks.insert(0, callback_class(session))
        trainer.fit = going_on
        trainer.save_checkpoint = _saving(trainer.save_checkpoint, LIGHTNING, session, place)

    return _after_making(module.Trainer, made)


def _after_making(trainer: Any, made: Callable[[Any], None]) -> Detach:
    """Calls `made` with every trainer that is constructed from now on; returns what ends this."""
    make = trainer.__init__

    @functools.wraps(make)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        made(self)

    trainer.__init__ = init
    return lambda: setattr(trainer, "__init__", make)


def _saving(save: Any, name: str, session: ScriptSession, place: Callable[..., Any]) -> Any:
    """Informs the session when a library saves. `place` gets the arguments; it returns the path,
    the number of steps, and whether the library can resume from there without any difference."""

    @functools.wraps(save)
    def saving(*args: Any, **kwargs: Any) -> None:
        path, step, is_whole = place(*args, **kwargs)
        with session.checkpointing(name, path.absolute(), step, is_whole=is_whole):
            save(*args, **kwargs)

    return saving


class _TransformersCallback:
    """A callback of transformers that informs the session."""

    def __init__(self, session: ScriptSession, size: StepSize) -> None:
        self._session = session
        self._size = size

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any
    ) -> None:
        self._session.begin_library_training(TRANSFORMERS, model, state.max_steps)
        self._size.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if self._session.step_is_last(*self._size.take()):
            control.should_training_stop = True

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any
    ) -> None:
        values = {
            name.removeprefix(TRANSFORMERS_PREFIX): value
            for name, value in (metrics or {}).items()
            if name.startswith(TRANSFORMERS_PREFIX)
            and not name.endswith(NO_METRICS)
            and isinstance(value, (int, float))
            and not isinstance(value, bool)
        }
        try:
            count = len(rest["eval_dataloader"].dataset)
        except (KeyError, AttributeError, TypeError):  # no loader yet, or samples without end
            count = None
        self._session.evaluated("validation", count, values)


class _LightningCallback:
    """A callback of Lightning that informs the session."""

    def __init__(self, session: ScriptSession) -> None:
        self._session = session
        self._size, self._manual = StepSize(), StepSize()
        self._steps_done = 0
        self._num_evaluated = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._steps_done = trainer.global_step
        if not self._session.has_compiled:
            pl_module.training_step = self._session.compile(pl_module.training_step, pl_module, {})
        steps = trainer.estimated_stepping_batches
        self._session.begin_library_training(
            LIGHTNING, None, 0 if math.isinf(steps) else int(steps)
        )

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Any) -> None:
        """With manual optimization, a batch may have several losses, and returns none."""
        if not pl_module.automatic_optimization:
            self._manual.add(loss)

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        manual = self._manual.take()[0]
        loss = manual if loss is None else loss
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
            metrics, count = _logged(trainer.callback_metrics), self._num_evaluated or None
            self._session.evaluated("validation", count, metrics)
        self._session.evaluate(False)


def _logged(logged: Mapping[str, Any]) -> dict[str, Any]:
    """The logged metrics of a validation, by names that other scripts use, too."""
    names = {"acc": "accuracy"}
    metrics = {}
    for name, value in logged.items():
        for prefix in LIGHTNING_PREFIXES:
            if name.startswith(prefix):
                short = name.removeprefix(prefix)
                metrics[names.get(short, short)] = value
    return metrics


TRAINERS: dict[str, Callable[[ModuleType, Any], Detach]] = {
    "transformers.trainer": attach_transformers,
    "lightning.pytorch.trainer.trainer": attach_lightning,
    "pytorch_lightning.trainer.trainer": attach_lightning,
}
"""Function by the module that a script's import of the library loads last."""
