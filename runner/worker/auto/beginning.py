"""What `breakeven.auto` does at once: reads the arguments and takes the model's calls over."""

from dataclasses import replace

from torch import nn
from torch._dynamo.eval_frame import OptimizedModule

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.fields import require
from breakeven.runner.worker.auto.auto_training import AutoTraining
from breakeven.runner.worker.compiler.compile_with_backend import make_compiler


def begin(
    model: nn.Module, steps: int | None, backend: str, max_compile_seconds: float | None
) -> AutoTraining:
    """Begins the experiment in a training. Raises `RunnerError` for a wrong argument."""
    is_own = isinstance(model, nn.Module) and not isinstance(model, OptimizedModule)
    rule = "must be the nn.Module itself, in place of torch.compile(model)"
    require(is_own and model._compiled_call_impl is None, "model", type(model).__name__, rule)
    require(steps is None or steps > 0, "steps", steps, "must be above 0, or None if unknown")
    arm = parse_backend(backend)
    if arm.scope == "blocks" or arm.backend is None:
        raise InvalidSpec("backend", backend, "must compile the whole model")
    if arm.backend == "inductor":
        # Dropout then draws the numbers of the uncompiled model.
        arm = replace(arm, options={"fallback_random": True, **arm.options})
    else:
        make_compiler(arm)  # raises for a backend that is not registered here
    return AutoTraining(model, arm, steps, max_compile_seconds=max_compile_seconds)
