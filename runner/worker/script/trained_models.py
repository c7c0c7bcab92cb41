"""Finds the models of a script that names none to compile.

A trained model is the outermost module that the script calls with gradients, and that holds tensors
of an optimizer. A teacher, an average of the weights, a frozen extractor of features or a loss
without weights holds none. Of DistributedDataParallel it is the module within. Without an optimizer
it is the outermost module in training mode. A module that goes backward itself is a trainer: its
model is looked for within.
"""

import functools
import inspect
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule

from breakeven.runner.worker.script.script_optimizers import ScriptOptimizers
from breakeven.runner.worker.script.script_workload import describe_class
from breakeven.runner.worker.script.torch_compile import (
    is_library,
    place_of,
    scripts_frame,
    within_parallelism,
)


@dataclass(frozen=True)
class FoundModel:
    """A model that the script trains."""

    module: nn.Module
    variable: str
    """What the script calls it, such as `agent.critic`; empty if unknown."""
    called_at: str

    @property
    def is_of_torch(self) -> bool:
        """Whether its class says nothing of the script."""
        return type(self.module).__module__.startswith("torch.")


def names_of(models: Sequence[FoundModel]) -> list[str]:
    """The class of each model, with its variable where the class does not distinguish it."""
    counts = Counter(type(model.module) for model in models)
    return [
        f"{type(model.module).__name__} {model.variable}".rstrip()
        if model.is_of_torch or counts[type(model.module)] > 1
        else type(model.module).__name__
        for model in models
    ]


def describe_models(models: Sequence[FoundModel]) -> list[str]:
    """The name of each model, and where its class stands in the script or where it is called."""
    return [
        f"{name} (called at {model.called_at})"
        if model.is_of_torch
        else describe_class(model.module).replace(type(model.module).__name__, name, 1)
        for name, model in zip(names_of(models), models, strict=True)
    ]


def _found(module: nn.Module, caller: Any) -> FoundModel:
    place = place_of(scripts_frame(caller) or caller)
    return FoundModel(within_parallelism(module), variable_of(module, caller), place)


def variable_of(module: nn.Module, frame: Any) -> str:
    """The variable of the script, or the attribute of one, that holds a module; the one of the
    outermost function, because helpers call many models by one name."""
    variable = ""
    while frame is not None:
        if not is_library(frame):
            variable = _held_by(module, frame.f_locals) or variable
        frame = frame.f_back
    return variable


def _held_by(module: nn.Module, variables: dict[str, Any]) -> str:
    for name, value in variables.items():
        if value is module:
            return name
    for name, value in variables.items():
        parts = value._modules if isinstance(value, nn.Module) else getattr(value, "__dict__", {})
        if type(value).__module__ != "builtins" and isinstance(parts, dict):
            for attribute, part in parts.items():
                if part is module:
                    return f"{name}.{attribute}"
    return ""


def is_trainer(module: nn.Module) -> bool:
    """Whether `forward`, or a method of its class that it calls, mentions `backward`. A part of
    that name, as of a network that reads in both directions, is none of a trainer."""
    if isinstance(getattr(module, "backward", None), nn.Module):
        return False
    kind = type(module)
    unread, read = ["forward"], set[str]()
    while unread:
        name = unread.pop()
        method = getattr(kind, name, None)
        if name in read or not inspect.isfunction(method):
            continue
        read.add(name)
        code = getattr(inspect.unwrap(method), "__code__", None)
        if code is not None:
            names = _names_in(code)
            if "backward" in names:
                return True
            unread += names
    return False


def _names_in(code: CodeType) -> list[str]:
    """Names of attributes and globals in a function, and in the functions within it."""
    inner = [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    return [*code.co_names, *(name for function in inner for name in _names_in(function))]


class TrainedModels:
    """Looks at the calls of modules from `look` on until `stop`."""

    def __init__(
        self,
        optimizers: ScriptOptimizers,
        named: str,
        is_wanted: Callable[[], bool],
        on_found: Callable[[FoundModel], None],
    ) -> None:
        """`named`: the class to look for, as `Model` or `train.py:Model`; empty for any. Calls
        `on_found` with each model before its call, unless `is_wanted` says no."""
        self._optimizers = optimizers
        self._file, _, self._class = named.rpartition(":")
        self._is_wanted = is_wanted
        self._on_found = on_found
        self._is_looking = self._may_look = False
        self._known: set[nn.Module] = set()

    def look(self) -> None:
        """Looks at the next calls, if models are wanted."""
        if self._is_looking or not self._may_look or not self._is_wanted():
            return
        self._call = call = nn.Module.__call__
        self._is_looking = True

        @functools.wraps(call)
        def looked_at(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or not self._is_candidate(module):
                return call(module, *args, **kwargs)
            # Modules within the outermost one are not looked at, and compilers see torch's own.
            nn.Module.__call__ = call  # type: ignore[method-assign]
            try:
                if module not in self._known and self._is_wanted() and self._is_trained(module):
                    self._known.update(module.modules())
                    self._on_found(_found(module, sys._getframe(1)))
                return call(module, *args, **kwargs)
            finally:
                if self._is_looking:
                    nn.Module.__call__ = looked_at  # type: ignore[method-assign]

        nn.Module.__call__ = looked_at  # type: ignore[method-assign]

    def stop(self) -> None:
        """Looks at no further call, so that no step is slower than alone."""
        if not self._is_looking:
            return
        self._is_looking = False
        nn.Module.__call__ = self._call  # type: ignore[method-assign]

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Allows to look, and begins."""
        self._may_look = True
        self.look()
        try:
            yield
        finally:
            self.stop()
            self._may_look = False

    def _is_candidate(self, module: nn.Module) -> bool:
        """Whether this may be a model: any module but a trainer, or one of the named class."""
        kind = type(module)
        if not self._class:
            return not is_trainer(module)
        file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
        return kind.__name__ == self._class and file.endswith(self._file)

    def _is_trained(self, module: nn.Module) -> bool:
        if not torch.is_grad_enabled() or isinstance(
            module, (OptimizedModule, torch.jit.ScriptModule)
        ):
            return False
        if not self._optimizers.numbers():
            return module.training and any(p.requires_grad for p in module.parameters())
        parameters = list(module.parameters())
        trained = self._optimizers.trained() if parameters else set()
        return any(id(parameter) in trained for parameter in parameters)
