"""Compiles functions and modules with a backend."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from types import MethodType
from typing import Any, cast

import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._dynamo import external_utils, trace_rules
from torch.nn.parameter import is_lazy

from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.arm_fields import QUICK_COMPILERS, Arm
from breakeven.runner.specs.values import nearest
from breakeven.runner.worker.user_code import load_backend

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
"""Compiles a function with a backend."""
CARRIES_NONE = (
    "backend {!r} is for inference alone: what it computes carries no gradients, so nothing can be "
    "trained with it"
)


def make_compiler(arm: Arm) -> Compile:
    """Returns a function that compiles functions, at their first call, with the arm's backend.
    Raises `RunnerError` for a backend that cannot be loaded here."""
    if arm.backend is None:
        return leave_alone
    known = torch._dynamo.list_backends(exclude_tags=None)
    if arm.backend not in known and not arm.path_of_backend:
        usual = dict.fromkeys([*torch._dynamo.list_backends(), *QUICK_COMPILERS])
        raise WorkloadError(
            f"backend {arm.backend!r} is not registered here; there are {', '.join(usual)}"
            + nearest(arm.backend, known)
        )
    # Draw random numbers as eager does, so that dropout agrees between backends.
    torch._inductor.config.fallback_random = True
    return cast(Compile, partial(torch.compile, **compile_arguments(arm)))


def set_ddp_mode(arm: Arm) -> None:
    """Sets how Dynamo treats DistributedDataParallel; call it before DDP is constructed."""
    torch._dynamo.config.optimize_ddp = arm.optimize_ddp or True
    # The Python reducer is compiled as a part of the backward pass.
    torch._dynamo.config.compiled_autograd = arm.optimize_ddp == "python_reducer"


def leave_alone(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function itself, without compiling it."""
    return function


def compile_arguments(arm: Arm) -> dict[str, Any]:
    """Keyword arguments of `torch.compile`, which refuses a mode together with options: then the
    mode becomes the options that torch lists for it."""
    mode, options = arm.mode, dict(arm.options)
    if mode is not None and options:
        by_mode = torch._inductor.list_mode_options(mode, arm.dynamic)
        mode, options = None, {**by_mode, **options}
    path = arm.path_of_backend
    return {
        "backend": _loaded(path) if path else arm.backend,
        "mode": mode,
        "fullgraph": arm.fullgraph,
        "dynamic": arm.dynamic,
        "options": options or None,
    }


_loaded = cache(load_backend)
"""A class has one instance, for all that the process compiles."""


def traceable(module: nn.Module) -> Callable[..., Any]:
    """The module's call for `torch.compile`. Dynamo does not begin in a forward function of torch,
    such as that of `nn.Sequential`, but continues into it from another function."""
    call: Callable[..., Any] = module._call_impl
    is_method = isinstance(module.forward, MethodType)
    if is_method and trace_rules.check(module.forward):
        call = external_utils.wrap_inline(call)
    return call


def repeated_blocks(model: nn.Module) -> list[nn.Module]:
    """Modules that share their class with another member of an `nn.ModuleList` or `nn.Sequential`,
    such as the layers of a transformer. Stages whose shapes all differ are not blocks if they
    contain blocks themselves. A block contains no other block."""
    members = _possible_blocks(model)
    classes = Counter(map(type, members))
    shaped = Counter((type(member), _shapes(member)) for member in members)
    same = {kind for (kind, _), count in shaped.items() if count > 1}
    blocks: list[nn.Module] = []
    for part in model.children():
        within = repeated_blocks(part)
        is_block = classes[type(part)] > 1 and (type(part) in same or not within)
        blocks += [part] if is_block else within
    return list(dict.fromkeys(blocks))  # Two parts of a model may share one list.


def block_paths(model: nn.Module) -> list[str]:
    """Where the repeated blocks are: `layers.3`, or `layers.*` for all members of a list."""
    blocks = {id(block) for block in repeated_blocks(model)}
    paths = []
    for prefix, parent in model.named_modules():
        names = [name for name, part in parent.named_children() if id(part) in blocks]
        if names and len(names) == len([*parent.children()]):
            names = ["*"]
        paths += [f"{prefix}.{name}".removeprefix(".") for name in names]
    return paths


def _possible_blocks(parent: nn.Module) -> list[nn.Module]:
    """Leaves out single layers and sequences, unless the parent is a list of one class."""
    if not isinstance(parent, nn.ModuleList | nn.Sequential):
        return []
    members = list(parent)
    if isinstance(parent, nn.ModuleList) and len({type(member) for member in members}) == 1:
        return members
    return [
        member
        for member in members
        if any(member.children()) and not isinstance(member, nn.Sequential)
    ]


def _shapes(module: nn.Module) -> tuple[torch.Size, ...]:
    return tuple(parameter.shape for parameter in module.parameters() if not is_lazy(parameter))


def compile_blocks(model: nn.Module, arm: Arm, compiler: Compile | None = None) -> None:
    """Compiles the model's repeated blocks in place, so that they share one compilation; `compiler`
    replaces the arm's own. Raises `WorkloadError` if there are none."""
    blocks = repeated_blocks(model)
    if not blocks:
        raise WorkloadError(
            f"{type(model).__name__} has no repeated blocks (modules of one class in an "
            "nn.ModuleList or nn.Sequential); choose another scope than 'blocks'"
        )
    for block in blocks:
        compiles = compiler or partial(torch.compile, **compile_arguments(arm))
        # Like `nn.Module.compile`, but also for modules whose forward is torch's own.
        block._compiled_call_impl = compiles(traceable(block))


@contextmanager
def explained(arm: Arm) -> Iterator[None]:
    """Raises `WorkloadError` for a training that fails in autograd because of the backend.

    A script's fault may cause the same error, so the backend is tried on a function that has
    gradients without it.
    """
    try:
        yield
    except RuntimeError as error:
        is_autograds = "grad" in str(error) or "backward" in str(error)
        if arm.backend is None or not is_autograds or _carries_gradients(arm):
            raise
        raise WorkloadError(CARRIES_NONE.format(arm.backend)) from error


def _carries_gradients(arm: Arm) -> bool:
    """Whether results of the backend have gradients; also True if the trial itself fails."""

    def times(factor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return (factor * other).sum()

    factor = torch.ones(2, requires_grad=True)
    try:
        with torch.enable_grad():
            return bool(make_compiler(arm)(times)(factor, torch.ones(2)).requires_grad)
    except Exception:  # backends raise many kinds
        return True
