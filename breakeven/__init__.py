"""Functions for training scripts: they mark what to compile and where a step ends.

    import breakeven  # a script needs none of this; it says what Breakeven would find or guess

    model = breakeven.compile(model)
    for batch in loader:
        loss = ...
        loss.backward()
        optimizer.step()
        breakeven.step(loss, samples=len(batch))

Under `breakeven run train.py` the script runs once for each backend, and these functions
measure it. Run by itself, the script works as before: `compile` is `torch.compile`, and the other
functions do almost nothing (docs/own-training.md).
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor, nn

__version__ = "0.2.0"
__all__ = ["__version__", "auto", "compile", "evaluated", "load", "record", "save", "step"]


class _Session(Protocol):
    """The program that runs and measures the script."""

    def compile(self, target: Any, model: "nn.Module | None", given: dict[str, Any]) -> Any: ...

    def step(
        self, loss: "Tensor | float | None", samples: int | None, tokens: int | None
    ) -> None: ...

    def evaluated(self, split: str, samples: int | None, metrics: dict[str, Any]) -> None: ...

    def record(self, name: str, value: "float | Tensor") -> None: ...

    def save(self, state: Any, file: "str | PathLike[str]") -> None: ...

    def load(self, file: "str | PathLike[str]", arguments: dict[str, Any]) -> Any: ...


_session: _Session | None = None


def compile(target: Any = None, *, model: "nn.Module | None" = None, **arguments: Any) -> Any:
    """Replaces `torch.compile`, for a model or a function, or as a decorator.

    A model is compiled in place, by `model.compile(**arguments)`, and returned, so that its weights
    keep their names; it has no `_orig_mod`. For a function it is
    `torch.compile(target, **arguments)`.
    Under the runner, backend, mode and options are those of the run (none for the baseline);
    `dynamic` and `fullgraph` stay as given unless the backend names them. `model` names the model
    that a function trains, if the function has no reference to it: runs must start with its
    weights alike, and the control perturbs them.
    """
    if target is None:
        return partial(compile, model=model, **arguments)
    if _session is not None:
        return _session.compile(target, model, arguments)
    import torch

    if isinstance(target, torch.nn.Module):
        target.compile(**arguments)
        return target
    return torch.compile(target, **arguments)


def auto(
    model: "nn.Module",
    *,
    steps: int | None = None,
    backend: str = "inductor",
    max_compile_seconds: float | None = None,
) -> "nn.Module":
    """Trains compiled if that is faster and computes the same (docs/auto.md); returns the model.

    Use it in place of `torch.compile(model)`. The training begins uncompiled. If compiling can pay
    within `steps`, the planned length, the model is compiled beside the training, compared with
    itself, and compiled and uncompiled steps alternate until it is decided. A model that the
    compiler gets wrong, or a compiler that fails or takes longer than `max_compile_seconds`, leaves
    an uncompiled training. `backend` may have settings, as on the command line.
    """
    if _session is not None:  # The runner compares; here is nothing to decide.
        return cast("nn.Module", _session.compile(model, None, {}))
    from breakeven.runner.worker.auto.beginning import begin

    begin(model, steps, backend, max_compile_seconds)
    return model


def step(
    loss: "Tensor | float | None" = None, samples: int | None = None, tokens: int | None = None
) -> None:
    """Ends an optimizer step; call it after `optimizer.step()`.

    `loss` is the loss of the step, one element; a tensor stays on the device until the block is
    over, so nothing waits for it. `samples` and `tokens` are the numbers that the step has
    processed. Here the turn passes to another run. A run that has to end ends here, by an exception
    that `except Exception` does not catch.
    """
    if _session is not None:
        _session.step(loss, samples, tokens)


def evaluated(
    split: str = "validation", samples: int | None = None, **metrics: "float | Tensor | None"
) -> None:
    """Records the results of an evaluation, as `loss`, `accuracy`, or by any other name.

    `split` is `train`, `validation` or `test`. `samples` is the number of judged samples; without
    it the uncertainty of the numbers is unknown. Work since the last step counts to no step.
    """
    if _session is not None:
        _session.evaluated(split, samples, metrics)


def record(name: str, value: "float | Tensor") -> None:
    """Records a custom number at the current step; the Run page charts it."""
    if _session is not None:
        _session.record(name, value)


def save(state: Any, file: "str | PathLike[str]") -> None:
    """Saves a checkpoint to resume from; without the runner it is `torch.save(state, file)`.

    Call it between two steps. Under the runner the file exists completely or not at all, the steps
    before it are on the disk, and the states of the random number generators are saved with it.
    Saving counts to no step.
    """
    if _session is not None:
        return _session.save(state, file)
    import torch

    torch.save(state, file)


def load(file: "str | PathLike[str]", **arguments: Any) -> Any:
    """Loads what `save` has stored, or returns None: then the training starts from its beginning.

    Call it before the first step, after creating everything that draws random numbers: it restores
    the states of their generators. Under the runner it finds only files that this run has saved, in
    this attempt or an earlier one, and step counts continue. Without the runner it is
    `torch.load(file, **arguments)` if the file exists.
    """
    if _session is not None:
        return _session.load(file, arguments)
    if not os.path.exists(file):
        return None
    import torch

    return torch.load(file, **arguments)


def _attach(session: _Session | None) -> None:
    """For the runner: sets the receiver of all further calls."""
    global _session  # noqa: PLW0603 - a script imports functions, which have to find it
    _session = session


def _detach_child() -> None:
    """Keeps a process that the script forks from writing into the journal."""
    _attach(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_child)
