"""Writes how a training gets the settings of a run: lines of Python, or a change of the script."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from breakeven.runner.errors import RunnerError
from breakeven.runner.folders.run_dir import RunDir
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.specs.variants import Variant
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.results import Comparison
from breakeven.storage.index.store import Store
from breakeven.storage.plan import Plan, own_steps
from breakeven.storage.profile.findings import variant_of
from breakeven.storage.script_change import Change, arguments_of, change, form_of

WITHOUT = "to train without a compiler"
NOTHING = "{name} has these settings already: leave it as it is."
CHANGE = "{aim}, change {name}; this command does so:"
BY_HAND = "{aim}, write:"
FURTHER = "and change by hand:"
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
    lines = recipe(spec, variant, found)
    if found is not None and found.diff:
        steps = planned.num_steps
        length = "" if steps == own_steps(comparison) else f" --plan '{steps} steps'"
        command = (
            f"cd {shlex.quote(str(script.parent))} && "
            f"breakeven show {comparison.experiment_id}{length} --diff | git apply"
        )
        return Use(intro=CHANGE.format(aim=aim, name=script.name), command=command,
                   diff=found.diff, lines=lines)  # fmt: skip
    if not lines:
        return Use(intro=NOTHING.format(name=printable(script.name)))
    return Use(intro=BY_HAND.format(aim=aim), lines=lines)


def _change(
    store: Store, experiment_id: str, spec: ExperimentSpec, variant: Variant
) -> Change | None:
    """The change of the script as the baseline executed it; None without a readable copy, or if its
    path cannot stand in a command or a diff."""
    if not (spec.model.script or "").isprintable():
        return None
    kept = queries.sources(store, experiment_id)
    runs = queries.list_runs(store, experiment_id).set_index("run_id")["folder"]
    for row in kept[kept["source"] == spec.model.script].itertuples():
        try:
            with RunDir(Path(runs[row.run_id])).open(str(row.file)) as copy:
                content = copy.read(MAX_SCRIPT_BYTES)
        except (KeyError, RunnerError, OSError):
            continue
        name = PurePath(spec.model.script or "").name
        return change(content, name, variant, [*setting_lines(spec, variant)])
    return None


def recipe(spec: ExperimentSpec, variant: Variant, beside: Change | None = None) -> str:
    """Lines for the user's own training, `beside` a change of the script; empty for the baseline.
    If users choose a name themselves, a comment explains it."""
    compiler = [*setting_lines(spec, variant)], [*_compiled(spec, variant)]
    first, last = ([], []) if beside and beside.says_compiler else compiler
    form = [] if beside and beside.says_form else _optimizer(spec, variant)
    return "\n".join([*first, *form, *last])


def setting_lines(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    """Lines that set something for the whole process."""
    if variant.batch_times > 1:
        size = spec.training.batch_size
        yield f"batch_size = {variant.batch_times * size}  # instead of {size}: another training"
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
        name = spec.training.optimizer
        if spec.is_script:
            name = "AdamW"
            yield "# Where your script makes its optimizer, of whatever class, add an argument:"
        form = ", ".join(f"{name}={one}" for name, one in form_of(variant).items())
        yield f"optimizer = torch.optim.{name}(model.parameters(), ..., {form})"


def _compiled(spec: ExperimentSpec, variant: Variant) -> Iterator[str]:
    if variant.backend is None:
        return
    arguments = ", ".join(f"{name}={one}" for name, one in arguments_of(variant).items())
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
