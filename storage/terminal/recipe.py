"""Writes the lines of Python that give a training the settings of a run."""

from collections.abc import Iterator
from pathlib import PurePath

from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Variant

FORMS = {
    "fused": "fused=True", "foreach": "foreach=True", "for_loop": "foreach=False, fused=False",
}  # fmt: skip


def recipe(spec: ExperimentSpec, variant: Variant) -> str:
    """Lines for the user's own training; empty for the baseline. If users choose a name themselves,
    a comment explains it."""
    return "\n".join([*_settings(spec, variant), *_optimizer(spec, variant), *_compiled(variant)])


def _settings(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    if variant.path_of_backend:
        module, _, name = variant.path_of_backend.rpartition(":")
        module = PurePath(module).name.removesuffix(".py")
        yield f"from {module} import {name}  # if it is a class, backend={name}()"
    if variant.tf32:
        yield 'torch.set_float32_matmul_precision("high")'
        yield "torch.backends.cudnn.allow_tf32 = True"
    if variant.math_attention == "reduced":
        yield "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)"
    draws_as_eager = variant.options.get("fallback_random", True)
    if variant.backend == "inductor" and spec.has_dropout and draws_as_eager:
        yield "torch._inductor.config.fallback_random = True  # dropout as without a compiler"


def _optimizer(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    if variant.optimizer is not None:
        name, form = spec.training.optimizer, FORMS[variant.optimizer]
        yield f"optimizer = torch.optim.{name}(model.parameters(), ..., {form})"


def _compiled(variant: Variant) -> Iterator[str]:
    if variant.backend is None:
        return
    arguments = ", ".join(_arguments(variant))
    match variant.scope:
        case "forward":
            yield f"model.compile({arguments})"
        case "blocks":
            yield "for block in model.layers:  # the repeated blocks, whatever the model calls them"
            yield f"    block.compile({arguments})"
        case "iteration" | "forward_backward":
            within = "forward, loss.backward()"
            if variant.scope == "iteration":
                within += ", optimizer.step(), optimizer.zero_grad()"
            yield f"@torch.compile({arguments})" if arguments else "@torch.compile"
            yield "def train_step(batch):"
            yield f"    ...  # {within}"


def _arguments(variant: Variant) -> Iterator[str]:
    """Arguments of `torch.compile`, which accepts a mode or options, but not both."""
    options = dict(variant.options)
    options.pop("fallback_random", None)
    if variant.backend != "inductor":
        path = variant.path_of_backend
        yield f"backend={path.rpartition(':')[2] if path else repr(variant.backend)}"
    if variant.mode is not None and not options:
        yield f"mode={variant.mode!r}"
    if options:
        mode = f"**torch._inductor.list_mode_options({variant.mode!r}), " if variant.mode else ""
        listed = ", ".join(f"{name!r}: {value!r}" for name, value in options.items())
        yield f"options={{{mode}{listed}}}"
    if variant.fullgraph:
        yield "fullgraph=True"
    if variant.dynamic is not None:
        yield f"dynamic={variant.dynamic}"
