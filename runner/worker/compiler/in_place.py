"""Modules compiled in place: they stay what they are, and only their calls are others."""

from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import nn
from torch._dynamo import external_utils, trace_rules

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.variants import Variant
from breakeven.runner.worker.compiler.compiling import Compile, compile_arguments


def traceable(module: nn.Module) -> Callable[..., Any]:
    """The module's call, as `torch.compile` takes it: Dynamo does not begin in a forward that lies
    in torch itself, as that of `nn.Sequential` does, but goes on there from another one."""
    call: Callable[..., Any] = module._call_impl
    is_method = isinstance(module.forward, MethodType)
    if is_method and trace_rules.check(module.forward):
        call = external_utils.wrap_inline(call)
    return call


def compile_in_place(module: nn.Module, compiler: Compile) -> None:
    """As `nn.Module.compile` does it, which compiles nothing where the forward is torch's own."""
    module._compiled_call_impl = compiler(traceable(module))


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of every `nn.ModuleList` that holds more than one module of one class."""
    return [
        block
        for modules in model.modules()
        if isinstance(modules, nn.ModuleList) and len(modules) > 1
        for block in modules
        if {type(other) for other in modules} == {type(block)}
    ]


def compile_blocks(model: nn.Module, variant: Variant) -> None:
    """Compiles the model's repeated blocks in place, so that one compilation serves them all.

    Raises `WorkloadError` if the model has none.
    """
    blocks = repeated_blocks(model)
    if not blocks:
        raise WorkloadError(
            f"{type(model).__name__} has no repeated blocks (an nn.ModuleList of one class); "
            "choose another scope than 'blocks'"
        )
    for block in blocks:
        compile_in_place(block, partial(torch.compile, **compile_arguments(variant)))
