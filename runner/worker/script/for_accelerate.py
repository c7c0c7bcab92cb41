"""Loops written with `accelerate.Accelerator`: `prepare`, `backward`, `optimizer.step`."""

import functools
import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from torch import nn

import breakeven
from breakeven.runner.worker.script.batch_sizes import StepSize
from breakeven.runner.worker.script.session import ScriptSession

NAME = "accelerate"


def attach(module: ModuleType, session: ScriptSession) -> None:
    """Has every accelerator tell the session, unless the script does so itself, or a library that
    uses accelerate in its turn."""
    from accelerate import data_loader  # only scripts that use it have it

    size = StepSize()
    accelerator, optimizer = module.Accelerator, module.AcceleratedOptimizer
    prepare, backward, step = accelerator.prepare, accelerator.backward, optimizer.step
    stepping: list[Any] = []
    batches: list[Any] = []
    """The last one that a loader gave, until something of it goes backwards."""
    for loader in (data_loader.DataLoaderShard, data_loader.DataLoaderDispatcher):
        _listen(loader, batches)

    @functools.wraps(prepare)
    def prepared(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = prepare(self, *args, **kwargs)
        models = [one for one in _all(result) if isinstance(one, nn.Module)]
        if models and not session.has_compiled and not _script_says_what():
            for model in models:
                session.compile(model, None, {})
        return result

    @functools.wraps(backward)
    def measured(self: Any, loss: Any, **kwargs: Any) -> None:
        batch = batches.pop() if batches else None
        size.add(loss.detach() / self.gradient_accumulation_steps, batch)
        backward(self, loss, **kwargs)

    @functools.wraps(step)
    def stepped(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, *args, **kwargs)
        if self.gradient_state.sync_gradients and session.may_step(NAME):
            if not stepping:
                stepping.append(self)
            # Of several optimizers one tells the step.
            if stepping[0] is self and not _script_says_what():
                session.trained_by(NAME, None, 0)
                session.step(*size.take())
        return result

    accelerator.prepare, accelerator.backward = prepared, measured
    optimizer.step = stepped


def _listen(loader: Any, batches: list[Any]) -> None:
    """Has loaders of a class leave each batch that they give, in place of the one before."""
    iterate = loader.__iter__

    @functools.wraps(iterate)
    def listened(self: Any) -> Iterator[Any]:
        for batch in iterate(self):
            batches[:] = [batch]
            yield batch

    loader.__iter__ = listened


def _all(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def _script_says_what() -> bool:
    """Whether the script itself uses `breakeven`: then it says what is compiled and what a step
    is."""
    names = {getattr(breakeven, name) for name in breakeven.__all__} | {breakeven}
    main = vars(sys.modules["__main__"])
    return any(value in names for value in list(main.values()) if _is_nameable(value))


def _is_nameable(value: Any) -> bool:
    return isinstance(value, ModuleType | FunctionType)
