"""Writes how a training gets the settings of a run: lines of Python, or a change of the script."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePath

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Variant
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.plan import Plan
from breakeven.storage.profile.findings import variant_of
from breakeven.storage.script_change import Change, Wanted, change

FORMS = {
    "fused": {"fused": "True"}, "foreach": {"foreach": "True"},
    "for_loop": {"foreach": "False", "fused": "False"},
}  # fmt: skip

WITHOUT = "to train without a compiler"
NOTHING = "{name} has these settings already: leave it as it is."
CHANGE = "{aim}, change {name}; this command does so:"
BY_HAND = "{aim}, write:"
FURTHER = "and write:"
MAX_SCRIPT_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Use:
    """How to train as the plan recommends."""

    intro: str
    """A sentence that introduces the command, or else the lines."""
    command: str = ""
    """The command that changes the user's script."""
    diff: str = ""
    """The change that this command makes."""
    lines: str = ""
    """Lines of Python for the user's own training."""


def how_to_use(store: Store, comparison: Comparison, planned: Plan) -> Use | None:
    """How to take the plan's best backend; for a searched script also how to take no compiler. None
    if nothing is recommended."""
    spec, best = comparison.spec, planned.best
    if best is not None:
        aim, (variant, _) = f"to take {best.label}", variant_of(spec, best.label)
    elif spec.is_script and (spec.kind.searches or spec.confirms) and planned.baseline_seconds:
        aim, variant = WITHOUT, spec.variants[0]
    else:
        return None
    script = PurePath(spec.model.script or "")
    found = _change(store, comparison.experiment_id, spec, variant) if spec.is_script else None
    settings = found is None or not found.says_compiler
    form = found is None or not found.says_form
    parts = [*(_settings(spec, variant) if settings else ()),
             *(_optimizer(spec, variant) if form else ()),
             *(_compiled(spec, variant) if settings else ())]  # fmt: skip
    lines = "\n".join(parts)
    if found is not None and found.diff:
        command = f"cd {shlex.quote(str(script.parent))} && "
        command += f"breakeven show {comparison.experiment_id} | git apply"
        return Use(intro=CHANGE.format(aim=aim, name=script.name), command=command,
                   diff=found.diff, lines=lines)  # fmt: skip
    if not lines:
        return Use(intro=NOTHING.format(name=script.name))
    return Use(intro=BY_HAND.format(aim=aim), lines=lines)


def _change(
    store: Store, experiment_id: str, spec: ExperimentSpec, variant: Variant
) -> Change | None:
    """The change of the script as the baseline executed it; None without a readable copy."""
    kept = queries.sources(store, experiment_id)
    runs = queries.list_runs(store, experiment_id).set_index("run_id")["folder"]
    for row in kept[kept["source"] == spec.model.script].itertuples():
        try:
            with RunDir(Path(runs[row.run_id])).open(str(row.file)) as copy:
                content = copy.read(MAX_SCRIPT_BYTES)
        except (KeyError, RunnerError, OSError):
            continue
        return change(content, PurePath(spec.model.script or "").name, wanted(spec, variant))
    return None


def wanted(spec: ExperimentSpec, variant: Variant) -> Wanted:
    """The settings of a run that a change of the script has to make."""
    compiling = None if variant.backend is None else _arguments(variant)
    trainer: dict[str, str] = {}
    by_trainer = {"backend", "mode"}
    lines = [f"torch._inductor.config.{name} = {one!r}" for name, one in _options(variant).items()]
    if compiling is not None:
        trainer["torch_compile"] = "True"
        trainer |= {f"torch_compile_{name}": one for name, one in compiling.items()
                    if name in by_trainer}  # fmt: skip
    if variant.mode is not None:
        trainer["torch_compile_mode"] = repr(variant.mode)
    return Wanted(
        lines=tuple(_settings(spec, variant)),
        compiling=compiling,
        trainer=trainer,
        trainer_lines=tuple(lines),
        form=_form(variant),
    )


def recipe(spec: ExperimentSpec, variant: Variant) -> str:
    """Lines for the user's own training; empty for the baseline. If users choose a name themselves,
    a comment explains it."""
    parts = _settings(spec, variant), _optimizer(spec, variant), _compiled(spec, variant)
    return "\n".join(chain.from_iterable(parts))


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
    has_dropout = spec.is_script or spec.has_dropout
    if variant.backend == "inductor" and has_dropout and draws_as_eager:
        yield "torch._inductor.config.fallback_random = True  # dropout as without a compiler"


def _optimizer(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    if variant.optimizer is not None:
        name, why = spec.training.optimizer, ""
        if spec.is_script:
            name, why = "AdamW", "  # or whichever optimizer the script makes"
        form = ", ".join(f"{name}={one}" for name, one in _form(variant).items())
        yield f"optimizer = torch.optim.{name}(model.parameters(), ..., {form}){why}"


def _form(variant: Variant) -> dict[str, str]:
    return FORMS[variant.optimizer] if variant.optimizer else {}


def _compiled(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    if variant.backend is None:
        return
    arguments = ", ".join(f"{name}={one}" for name, one in _arguments(variant).items())
    if spec.is_script and variant.scope == "iteration":
        given = ", ".join(filter(None, ["model", arguments]))
        yield f"model = torch.compile({given})  # before the first step"
        return
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


def _arguments(variant: Variant) -> dict[str, str]:
    """Arguments of `torch.compile`, which accepts a mode or options, but not both."""
    found, options, path = {}, _options(variant), variant.path_of_backend
    if variant.backend != "inductor":
        found["backend"] = path.rpartition(":")[2] if path else repr(variant.backend)
    if variant.mode is not None and not options:
        found["mode"] = repr(variant.mode)
    if options:
        mode = f"**torch._inductor.list_mode_options({variant.mode!r}), " if variant.mode else ""
        listed = ", ".join(f"{name!r}: {value!r}" for name, value in options.items())
        found["options"] = f"{{{mode}{listed}}}"
    if variant.fullgraph:
        found["fullgraph"] = "True"
    if variant.dynamic is not None:
        found["dynamic"] = str(variant.dynamic)
    return found


def _options(variant: Variant) -> dict[str, object]:
    return {name: one for name, one in variant.options.items() if name != "fallback_random"}
