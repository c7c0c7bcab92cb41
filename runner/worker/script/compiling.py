"""Replaces `torch.compile` and the forms of optimizers while a script runs, by those of the run's
variant."""

import functools
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import OptimizerForm, Variant
from breakeven.runner.worker.compiler.compiling import (
    compile_arguments,
    compile_blocks,
    leave_alone,
    make_compiler,
    traceable,
)
from breakeven.runner.worker.compiler.observer import (
    PACKAGES,
    RUNNER,
    STANDARD_LIBRARY,
    short_path,
)

TRAINERS = ("transformers.trainer", "accelerate", "lightning", "pytorch_lightning")
"""Packages and modules that compile a script's code; others compile their own functions."""
LIBRARIES = (PACKAGES, STANDARD_LIBRARY, f"{sysconfig.get_path('platlib')}/")
OnCompile = Callable[[nn.Module | None, Callable[..., Any]], None]
OnCall = Callable[[nn.Module | None, object], None]
NO_FORM = "The script's optimizer {} has no {!r} implementation."
CHOSEN = "The script itself chooses the implementation of its optimizer {}: no other is measured."


class ScriptCompiler:
    """Compiles a script's models and functions under a variant's backend, and watches their
    calls."""

    def __init__(self, variant: Variant, on_compile: OnCompile, on_call: OnCall) -> None:
        """Calls `on_compile` with each module or function to compile, and `on_call` when uncompiled
        code calls it. Raises `WorkloadError` for a backend that is not registered with torch."""
        self._variant = variant
        self._on_compile, self._on_call = on_compile, on_call
        self._compiler = make_compiler(variant)
        self.calls: dict[str, str] = {}
        """Arguments of each call of `torch.compile` in the script, by `file:line`."""

    def compile(self, target: Any, given: dict[str, Any]) -> Any:
        """Compiles a module in place and returns it, or returns a compiled function."""
        if isinstance(target, nn.Module):
            self._compile_module(target, given)
            return target
        return self._watched(target, self._compiled(target, given), None)

    def _compile_module(self, module: nn.Module, given: dict[str, Any]) -> None:
        """Compiles in place like `nn.Module.compile`; every variant keeps the same object."""
        call = module._call_impl
        if self._variant.scope == "blocks":
            compile_blocks(module, self._variant)
        else:
            call = self._compiled(traceable(module), given)
        module._compiled_call_impl = self._watched(module._call_impl, call, module)
        # Scripts look here for the module that `torch.compile` wraps. Not as a submodule.
        object.__setattr__(module, "_orig_mod", module)

    def _compiled(self, function: Callable[..., Any], given: dict[str, Any]) -> Callable[..., Any]:
        if self._variant.backend is None:
            return leave_alone(function)
        arguments = compile_arguments(self._variant)
        arguments["fullgraph"] = arguments["fullgraph"] or bool(given.get("fullgraph"))
        if arguments["dynamic"] is None:
            arguments["dynamic"] = given.get("dynamic")
        return self._compiler(function, **arguments)

    def _watched(
        self, plain: Callable[..., Any], compiled: Callable[..., Any], module: nn.Module | None
    ) -> Callable[..., Any]:
        self._on_compile(module, plain)
        on_call = self._on_call

        @functools.wraps(plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return plain(*args, **kwargs)
            on_call(module, (args, kwargs))
            return compiled(*args, **kwargs)

        return watched

    @contextmanager
    def in_place_of_torch(self) -> Iterator[None]:
        """Replaces `torch.compile` and `nn.Module.compile` for the script and for libraries that
        train its model, but not for libraries that compile their own functions."""
        torch_compile, module_compile = torch.compile, nn.Module.compile

        @functools.wraps(torch_compile)
        def compile(model: Any = None, **given: Any) -> Any:
            if not _is_scripts(caller := sys._getframe(1)):
                return torch_compile(model, **given)
            if model is None:
                return functools.partial(compile, **given)
            self._note(caller, given)
            return self.compile(model, given)

        @functools.wraps(module_compile)
        def compile_in_place(module: nn.Module, *args: Any, **given: Any) -> None:
            if not _is_scripts(caller := sys._getframe(1)):
                return module_compile(module, *args, **given)
            self._note(caller, given)
            self._compile_module(module, given)

        torch.compile, nn.Module.compile = compile, compile_in_place  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            torch.compile, nn.Module.compile = torch_compile, module_compile  # type: ignore[method-assign]

    def _note(self, caller: Any, given: dict[str, Any]) -> None:
        where = f"{short_path(caller.f_code.co_filename)}:{caller.f_lineno}"
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        self.calls[where.removeprefix(f"{Path.cwd()}/")] = settings


def _is_scripts(frame: Any) -> bool:
    """Whether the script, or a library that trains its model, makes this call."""
    name = frame.f_globals.get("__name__", "")
    if any(name == one or name.startswith(f"{one}.") for one in TRAINERS):
        return True
    return not frame.f_code.co_filename.startswith((RUNNER, *LIBRARIES))


@contextmanager
def optimizers_in(form: OptimizerForm | None, fixed: dict[str, str]) -> Iterator[None]:
    """Makes each optimizer in this form, as its arguments `foreach` and `fused` do; None leaves the
    script's. For an optimizer that has no form but its own, or whose form the script chooses, adds
    the reason to `fixed`, or raises `WorkloadError` in the script if there is a form to set."""
    make = Optimizer.__init__

    @functools.wraps(make)
    def init(self: Optimizer, params: Any, defaults: dict[str, Any]) -> None:
        name = type(self).__name__
        if (form if form == "foreach" else "fused") not in defaults:
            fixed["optimizer"] = NO_FORM.format(name, form or "fused")
        elif any(defaults.get(one) is not None for one in ("fused", "foreach")):
            fixed["optimizer"] = CHOSEN.format(name)
        if form is None:
            return make(self, params, defaults)
        if fixed:
            raise WorkloadError(fixed["optimizer"])
        make(self, params, {**defaults, "fused": form == "fused", "foreach": form == "foreach"})

    Optimizer.__init__ = init  # type: ignore[method-assign]
    try:
        yield
    finally:
        Optimizer.__init__ = make  # type: ignore[method-assign]
