"""`transformers.Trainer` and those derived from it, `Seq2SeqTrainer` among them."""

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from breakeven.runner.worker.script.batch_sizes import StepSize
from breakeven.runner.worker.script.session import ScriptSession

NAME = "transformers.Trainer"
PREFIX_CHECKPOINT_DIR = "checkpoint"
"""Begins the names of its checkpoints' folders, as transformers.trainer_utils has it."""
NO_METRICS = ("runtime", "samples_per_second", "steps_per_second", "compilation_time", "epoch")
PREFIX = "eval_"


def attach(module: ModuleType, session: ScriptSession) -> None:
    """Has every trainer made from now on tell the session."""
    make = module.Trainer.__init__
    callback_class: Any = type("Told", (_Told, module.TrainerCallback), {})

    @functools.wraps(make)
    def init(trainer: Any, *args: Any, **kwargs: Any) -> None:
        make(trainer, *args, **kwargs)
        size = StepSize()
        trainer.training_step = _measured(trainer.training_step, size)
        trainer.train = _going_on(trainer.train, session)
        trainer._save_checkpoint = _told_of(trainer, trainer._save_checkpoint, session)
        trainer.add_callback(callback_class(session, size))

    module.Trainer.__init__ = init


def _measured(training_step: Any, size: StepSize) -> Any:
    """A micro-batch; what it returns is its share of the step's loss."""

    @functools.wraps(training_step)
    def measured(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss = training_step(model, inputs, *args, **kwargs)
        size.add(loss, inputs)
        return loss

    return measured


def _going_on(train: Any, session: ScriptSession) -> Any:
    """Trains on from where an earlier attempt at the run saved, if it did."""

    @functools.wraps(train)
    def going_on(resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        saved = session.resuming.checkpoint_of(NAME)
        whence = resume_from_checkpoint if saved is None else str(saved)
        return train(whence, *args, **kwargs)

    return going_on


def _told_of(trainer: Any, save: Any, session: ScriptSession) -> Any:
    @functools.wraps(save)
    def told_of(model: Any, trial: Any, *args: Any, **kwargs: Any) -> None:
        step = trainer.state.global_step
        folder = Path(trainer._get_output_dir(trial=trial), f"{PREFIX_CHECKPOINT_DIR}-{step}")
        is_whole = not trainer.args.save_only_model
        with session.checkpointing(NAME, folder.absolute(), step, is_whole=is_whole):
            save(model, trial, *args, **kwargs)

    return told_of


def _num_samples(loader: Any) -> int | None:
    try:
        return len(loader.dataset)
    except (AttributeError, TypeError):  # no loader yet, or samples without end
        return None


class _Told:
    """What a callback of the library tells the session."""

    def __init__(self, session: ScriptSession, size: StepSize) -> None:
        self._session = session
        self._size = size

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any
    ) -> None:
        self._session.trained_by(NAME, model, state.max_steps)
        self._size.clear()

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        if self._session.step_is_last(*self._size.take()):
            control.should_training_stop = True

    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Any = None, **rest: Any
    ) -> None:
        told = {
            name.removeprefix(PREFIX): value
            for name, value in (metrics or {}).items()
            if name.startswith(PREFIX)
            and isinstance(value, (int, float))
            and not isinstance(value, bool)
        }
        kept = {n: value for n, value in told.items() if not n.endswith(NO_METRICS)}
        loader = rest.get("eval_dataloader")
        self._session.evaluated("validation", _num_samples(loader), kept)
