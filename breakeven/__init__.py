"""What a training script tells Breakeven: what to compile, and where a step ends.

    import breakeven

    model = breakeven.compile(model)
    for batch in loader:
        loss = ...
        loss.backward()
        optimizer.step()
        breakeven.step(loss, samples=len(batch))

Under `breakeven script train.py` the script runs once for each backend, and these functions
measure it. By hand it runs as ever: `compile` is `torch.compile`, and the others do next to
nothing (docs/own-training.md).
"""

import os
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from os import PathLike

    from torch import Tensor, nn

__all__ = ["compile", "evaluated", "load", "record", "save", "step"]


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
    """Stands where `torch.compile` would, for a model or a function, or as a decorator.

    By hand it is `torch.compile(target, **arguments)`. Under the runner backend, mode and options
    are those of the run (none for the baseline); `dynamic` and `fullgraph` stay as given unless the
    backend names them. A model is compiled in place and returned. `model` names the one that a
    function trains where it cannot be found among what the function refers to: its weights are
    what runs must begin with alike, and what the control perturbs.
    """
    if target is None:
        return partial(compile, model=model, **arguments)
    if _session is not None:
        return _session.compile(target, model, arguments)
    import torch

    return torch.compile(target, **arguments)


def step(
    loss: "Tensor | float | None" = None,
    samples: int | None = None,
    tokens: int | None = None,
) -> None:
    """Ends an optimizer step; call it behind `optimizer.step()`.

    `loss` is the step's, of one element; a tensor stays on the device until the block is over, so
    nothing waits for it. `samples` and `tokens` are how many the step has worked on. Here the turn
    passes to another run, and a run that shall end ends: with an exception that no
    `except Exception` catches.
    """
    if _session is not None:
        _session.step(loss, samples, tokens)


def evaluated(
    split: str = "validation", samples: int | None = None, **metrics: "float | Tensor | None"
) -> None:
    """Records what an evaluation found, as `loss`, `accuracy`, or by any other name.

    `split` is `train`, `validation` or `test`. `samples` is the number of judged samples; without
    it the uncertainty of the numbers is unknown. Work since the last step counts to no step.
    """
    if _session is not None:
        _session.evaluated(split, samples, metrics)


def record(name: str, value: "float | Tensor") -> None:
    """Records a number of one's own at the current step; the Run page charts it."""
    if _session is not None:
        _session.record(name, value)


def save(state: Any, file: "str | PathLike[str]") -> None:
    """Saves a checkpoint to go on from; by hand it is `torch.save(state, file)`.

    Call it between two steps. Under the runner the file exists whole or not at all, the steps
    before it are on the disk, and the states of the random number generators are saved with it.
    Saving counts to no step.
    """
    if _session is not None:
        return _session.save(state, file)
    import torch

    torch.save(state, file)


def load(file: "str | PathLike[str]", **arguments: Any) -> Any:
    """What `save` has left there, or None: then the training begins at its beginning.

    Call it before the first step, when all is made that draws random numbers: their generators
    stand afterwards where they stood when it was saved. Under the runner it finds what this run has
    saved, in this attempt or in one that ended early, and no file from elsewhere; steps are counted
    on. By hand it is `torch.load(file, **arguments)` if there is such a file.
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
    """A process that the script forks writes into no journal."""
    _attach(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_detach_child)
