"""Replaces `torch.compile` while a script runs: it compiles under the backend of the run."""

import functools
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch._dynamo.eval_frame import OptimizedModule
from torch.nn.parallel import DistributedDataParallel

from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.worker.compiler.compile_with_backend import (
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
    TORCH,
    short_path,
)

TRAINERS = ("transformers.trainer", "accelerate", "lightning", "pytorch_lightning")
"""Packages and modules that compile a script's functions; others compile their own ones."""
LIBRARIES = (PACKAGES, STANDARD_LIBRARY, f"{sysconfig.get_path('platlib')}/")
OnCompile = Callable[[nn.Module | None, Callable[..., Any]], None]
OnCall = Callable[[nn.Module | None, tuple[Any, Any]], None]


class ScriptCompiler:
    """Compiles a script's models and functions under an arm's backend, and watches their
    calls."""

    def __init__(
        self,
        arm: Arm,
        on_compile: OnCompile,
        on_call: OnCall,
        on_return: Callable[[object], None],
        on_own: Callable[[], None] = lambda: None,
    ) -> None:
        """Calls `on_compile` with each module or function to compile, `on_call` when uncompiled
        code calls it, `on_return` with its result, and `on_own` before the script itself compiles
        anything. Raises `WorkloadError` for a backend that is
        not registered with torch."""
        self._arm = arm
        self._on_compile, self._on_call, self._on_return = on_compile, on_call, on_return
        self._on_own = on_own
        self._compiler = make_compiler(arm)
        self.calls: dict[str, str] = {}
        """Arguments of each call of `torch.compile` in the script, by `file:line`."""
        self.of_libraries: set[str] = set()
        """Places at which libraries compile functions of their own."""

    def compile(self, target: Any, given: dict[str, Any]) -> Any:
        """Returns what `torch.compile` returns: torch's wrapper of a module, which keeps the module
        itself uncompiled, or a compiled function. So a script can do with it what it can do alone.
        """
        if isinstance(target, nn.Module):
            return OptimizedModule(target, CompileContext(given))  # type: ignore[arg-type]
        return self._watched(target, self._compiled(target, given), None)

    def compile_call(self, function: Callable[..., Any], given: dict[str, Any]) -> Any:
        """Compiles a function of a module, such as its call, for a wrapper of this module."""
        target = inspect.unwrap(function)  # torch wraps the call of some modules once more
        module = target if isinstance(target, nn.Module) else getattr(target, "__self__", None)
        if isinstance(module, nn.Module) and self._arm.scope == "blocks":
            compile_blocks(module, self._arm)
            return self._watched(function, function, module)
        return self._watched(function, self._compiled(function, given), module)

    def compile_in_place(self, module: nn.Module, given: dict[str, Any]) -> None:
        """Does what `nn.Module.compile` does."""
        call = module._call_impl
        if self._arm.scope == "blocks":
            compile_blocks(module, self._arm)
        else:
            call = self._compiled(traceable(module), given)
        module._compiled_call_impl = self._watched(module._call_impl, call, module)

    def _compiled(self, function: Callable[..., Any], given: dict[str, Any]) -> Callable[..., Any]:
        if self._arm.backend is None:
            return leave_alone(function)
        arguments = compile_arguments(self._arm)
        is_whole = bool(given.get("fullgraph")) and not self._arm.allows_breaks
        arguments["fullgraph"] = arguments["fullgraph"] or is_whole
        if arguments["dynamic"] is None:
            arguments["dynamic"] = given.get("dynamic")
        return self._compiler(function, **arguments)

    def _watched(
        self, plain: Callable[..., Any], compiled: Callable[..., Any], module: nn.Module | None
    ) -> Callable[..., Any]:
        self._on_compile(module, plain)
        on_call, on_return = self._on_call, self._on_return

        @functools.wraps(plain)
        def watched(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return plain(*args, **kwargs)
            on_call(module, (args, kwargs))
            result = compiled(*args, **kwargs)
            on_return(result)
            return result

        return watched

    @contextmanager
    def in_place_of_torch(self) -> Iterator[None]:
        """Replaces `torch.compile` and `nn.Module.compile`, but not for libraries that compile
        their own functions. Dynamo keeps what it finds there, which therefore refers to nothing of
        the script."""
        global _current  # noqa: PLW0603 - torch's wrappers, also unpickled ones, have to find it
        _current = self
        places = self.of_libraries
        torch_compile, module_compile = torch.compile, nn.Module.compile

        @functools.wraps(torch_compile)
        def compile(model: Any = None, **given: Any) -> Any:
            if not _is_scripts(caller := sys._getframe(1), model):
                if not caller.f_globals.get("__name__", "").startswith("torch."):
                    places.add(place_of(caller))
                return torch_compile(model, **given)
            if model is None:
                return functools.partial(compile, **given)
            assert _current is not None
            _current._note(caller, given)
            return _current.compile(model, given)

        @functools.wraps(module_compile)
        def compile_in_place(module: nn.Module, *args: Any, **given: Any) -> None:
            assert _current is not None
            _current._note(sys._getframe(1), given)
            _current.compile_in_place(module, given)

        torch.compile, nn.Module.compile = compile, compile_in_place  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            _current = None
            torch.compile, nn.Module.compile = torch_compile, module_compile  # type: ignore[method-assign]

    def _note(self, caller: Any, given: dict[str, Any]) -> None:
        self._on_own()
        settings = ", ".join(f"{name}={value!r}" for name, value in given.items())
        self.calls[place_of(caller)] = settings


def within_parallelism(module: nn.Module) -> nn.Module:
    """What of a model to compile: Dynamo does not trace through `DistributedDataParallel`, which is
    torch's own code."""
    return module.module if isinstance(module, DistributedDataParallel) else module


def place_of(caller: Any) -> str:
    """`file:line` of a frame, relative to the working folder."""
    return f"{short_path(caller.f_code.co_filename, Path.cwd())}:{caller.f_lineno}"


def scripts_frame(frame: Any) -> Any:
    """The frame of the script's own code that made a call; of an installed program, whose code is
    among the libraries, the first frame outside of torch."""
    outside = None
    while frame is not None and is_library_file(frame.f_code.co_filename):
        if outside is None and not frame.f_code.co_filename.startswith(TORCH):
            outside = frame
        frame = frame.f_back
    return frame or outside


def _is_scripts(caller: Any, target: Any) -> bool:
    """Whether this call compiles the script's code: any module, and what the script itself or a
    library that trains its model compiles."""
    name = caller.f_globals.get("__name__", "")
    is_trainer = any(name == trainer or name.startswith(f"{trainer}.") for trainer in TRAINERS)
    return isinstance(target, nn.Module) or is_trainer or not is_library(caller)


def is_library(frame: Any) -> bool:
    """Whether this frame's code is no module of the script."""
    return is_library_file(frame.f_code.co_filename)


@functools.cache
def is_library_file(file: str) -> bool:
    return file.startswith((RUNNER, *LIBRARIES))


_current: ScriptCompiler | None = None
"""Compiles while a script runs."""


class CompileContext:
    """What a wrapper of `torch.compile` keeps as `dynamo_ctx`: compiles the functions of a module,
    as Lightning also asks it to. Copies of a wrapper share it. A pickled one compiles in the
    process that loads it: under its run's backend, or as `torch.compile` does without a run."""

    def __init__(self, given: dict[str, Any]) -> None:
        """`given`: the arguments of the call of `torch.compile`."""
        self._given = given

    def __call__(self, function: Callable[..., Any]) -> Any:
        if _current is None:
            return torch.compile(function, **self._given)
        return _current.compile_call(function, self._given)

    def __deepcopy__(self, memo: dict[int, Any]) -> "CompileContext":
        return self
