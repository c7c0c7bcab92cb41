"""Writes how a training gets the settings of a run: lines of Python, or a change of the script.

The change is a diff for `git apply`. Under Breakeven every call of `torch.compile` in a script does
what the run's backend says. So the diff gives these calls the arguments of the run; in a script
without such a call, transformers' `TrainingArguments` get them.
"""

import ast
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import accumulate
from pathlib import Path, PurePath
from typing import NamedTuple

from breakeven.runner.arguments.lengths import write_length
from breakeven.runner.errors import RunnerError
from breakeven.runner.protocol.data_dir import DataDir
from breakeven.runner.protocol.run_dir import RunDir
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.arms import change_words
from breakeven.runner.specs.candidates import FORMS
from breakeven.runner.specs.experiment import ExperimentSpec
from breakeven.runner.texts import printable
from breakeven.storage import queries
from breakeven.storage.comparison.plan import Plan, own_steps
from breakeven.storage.comparison.results import Comparison, Result
from breakeven.storage.index.store import Store
from breakeven.storage.profile.findings import arm_of

COMPILES = ("breakeven.compile", "torch.compile")
TRAINERS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
OPTIMIZERS = tuple(f"torch.optim.{name}" for name in FORMS)
USUAL = {"backend": "'inductor'", "mode": "None", "options": "None", "disable": "False"}
"""Arguments of `torch.compile` that change nothing."""
TRAINERS_USUAL = {
    "torch_compile": "False",
    "torch_compile_backend": "None",
    "torch_compile_mode": "None",
}
FUSED = {"optim": "'adamw_torch_fused'"}
LOADERS = ("torch.utils.data.DataLoader",)
MOST_POSITIONAL = 5
"""Positional arguments that a call may have: none of them is one that a change sets."""
NO_NEWLINE = "\\ No newline at end of file\n"

Arguments = Mapping[str, str]
"""Keyword arguments as Python, by name."""


class Change(NamedTuple):
    """How a script is changed."""

    diff: str
    """For `git apply`; empty if the script has these settings already."""
    says_compiler: bool
    """Whether the changed script says what is compiled and how; else it needs further lines."""
    says_form: bool
    """Whether it says the implementation of its optimizer."""
    says_loaders: bool
    """Whether it says how many processes load its data."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def change(
    content: bytes, name: str, arm: Arm, lines: Sequence[str], *, on_cuda: bool = False
) -> Change | None:
    """The change of a script with this content and file name, to train with an arm; `lines` set
    something for the whole process. None for a script that cannot be changed: it is not Python, its
    arguments are in a dictionary, or lines around a change have invisible characters."""
    form, is_compiled = form_of(arm), arm.backend is not None
    try:
        script = _Script(content)
        compiled, trainers = script.compiled(), script.calls(TRAINERS)
        optimizers = script.calls(OPTIMIZERS) if form else []
        loading = loading_of(arm, on_cuda=on_cuda)
        loaders = script.calls(LOADERS) if loading else []
        edits = [edit for call in optimizers for edit in script.set(call, form, {})]
        edits += [edit for call in loaders for edit in script.set(call, loading, {})]
        if loading:
            loaders += trainers
            given = {"dataloader_num_workers": loading["num_workers"]}
            edits += [edit for call in trainers for edit in script.set(call, given, {})]
        if compiled:
            given = arguments_of(arm) if is_compiled else {"disable": "True"}
            usual = USUAL if is_compiled else {"disable": "False"}
            edits += [edit for call in compiled for edit in script.set(call, given, usual)]
        elif trainers:
            given = {
                f"torch_compile_{key}": repr(value)
                for key in ("backend", "mode")
                if (value := getattr(arm, key)) not in (None, "inductor")
            }
            given = {"torch_compile": "True", **given} if is_compiled else {}
            edits += [edit for call in trainers for edit in script.set(call, given, TRAINERS_USUAL)]
            lines = [
                *lines,
                *(
                    f"torch._inductor.config.{key} = {value!r}"
                    for key, value in options_of(arm).items()
                ),
            ]
        if form.get("fused") == "True":
            unfused = [call for call in trainers if script.text(call, "optim") == "adamw_torch"]
            optimizers += unfused
            edits += [edit for call in unfused for edit in script.set(call, FUSED, {})]
    except (SyntaxError, ValueError):
        return None
    says_compiler = not is_compiled or bool(compiled or trainers)
    if lines and says_compiler:
        first = min((edit.start for edit in edits), default=len(content))
        edits.append(script.after_imports(lines, before=first))
    diff = _diff(content, script.edited(edits), name)
    # A terminal shows the diff, and must not obey it.
    if not re.sub(r"\r?\n|\t", "", diff).isprintable():
        return None
    return Change(diff, says_compiler, bool(optimizers) or not form, bool(loaders) or not loading)


def arguments_of(arm: Arm) -> dict[str, str]:
    """Arguments of `torch.compile`, which accepts a mode or options, but not both."""
    arguments, options, path = {}, options_of(arm), arm.path_of_backend
    if arm.backend != "inductor":
        arguments["backend"] = path.rpartition(":")[2] if path else repr(arm.backend)
    if arm.mode is not None and not options:
        arguments["mode"] = repr(arm.mode)
    if options:
        mode = f"**torch._inductor.list_mode_options({arm.mode!r}), " if arm.mode else ""
        listed = ", ".join(f"{name!r}: {value!r}" for name, value in options.items())
        arguments["options"] = f"{{{mode}{listed}}}"
    if arm.fullgraph:
        arguments["fullgraph"] = "True"
    if arm.dynamic is not None:
        arguments["dynamic"] = str(arm.dynamic)
    return arguments


def options_of(arm: Arm) -> dict[str, object]:
    return {name: value for name, value in arm.options.items() if name != "fallback_random"}


def form_of(arm: Arm) -> dict[str, str]:
    """Arguments of an optimizer."""
    match arm.optimizer:
        case None:
            return {}
        case "for_loop":
            return {"foreach": "False", "fused": "False"}
        case form:
            return {form: "True"}


def loading_of(arm: Arm, *, on_cuda: bool) -> dict[str, str]:
    """Arguments of a `DataLoader`."""
    if not arm.loader_workers:
        return {}
    pinned = {"pin_memory": "True"} if on_cuda else {}
    return {"num_workers": str(arm.loader_workers), **pinned}


class _Script:
    """The syntax tree of a script, with places in bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._tree = ast.parse(content)
        lines = content.splitlines(keepends=True)
        self._starts = list(accumulate(map(len, lines), initial=0))
        self._imported: dict[str, str] = {}
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Import):
                for imported in node.names:
                    module = imported.name if imported.asname else imported.name.partition(".")[0]
                    self._imported[imported.asname or module] = module
            elif isinstance(node, ast.ImportFrom):
                for imported in node.names:
                    self._imported[imported.asname or imported.name] = (
                        f"{node.module}.{imported.name}"
                    )

    def compiled(self) -> list[ast.expr]:
        """Calls of `torch.compile`, of Breakeven's `compile`, and of a module's method."""
        methods = [
            node.value
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute)
            and node.value.func.attr == "compile"
            and self._path(node.value.func) is None
        ]
        return [*self.calls(COMPILES), *methods]

    def calls(self, paths: tuple[str, ...]) -> list[ast.expr]:
        """Calls of these functions, and decorators that name one without a call."""
        named: list[ast.expr] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and self._path(node.func) in paths:
                named.append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                named += [
                    decorator for decorator in node.decorator_list if self._path(decorator) in paths
                ]
        return named

    def _path(self, node: ast.expr) -> str | None:
        """`torch.optim.AdamW` for a name that was imported, by whatever name; else None."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id)
        if isinstance(node, ast.Attribute) and (owner := self._path(node.value)):
            return f"{owner}.{node.attr}"
        return None

    def text(self, call: ast.expr, name: str) -> object:
        """The constant that a call gives an argument; None for any other value."""
        given = call.keywords if isinstance(call, ast.Call) else []
        values = [argument.value for argument in given if argument.arg == name]
        return values[0].value if values and isinstance(values[0], ast.Constant) else None

    def set(self, call: ast.expr, wanted: Arguments, usual: Arguments) -> Iterator[_Edit]:
        """Sets arguments of a call: `wanted`, and those of `usual` that the call has. Raises
        `ValueError` for a call with a dictionary, or too many positional ones."""
        if not isinstance(call, ast.Call):  # a decorator without a call
            listed = ", ".join(_listed(wanted, usual))
            yield _Edit(self._end(call), self._end(call), f"({listed})" if listed else "")
            return
        if any(argument.arg is None for argument in call.keywords):
            raise ValueError("arguments in a dictionary")
        if len(call.args) > MOST_POSITIONAL:  # one of them may be wanted
            raise ValueError("positional arguments")
        given = {argument.arg: argument.value for argument in call.keywords if argument.arg}
        for name, value in given.items():
            text = wanted.get(name) or usual.get(name)
            if text is not None:
                yield _Edit(self._start(value), self._end(value), text)
        new = _listed({name: value for name, value in wanted.items() if name not in given}, usual)
        both: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        before = sorted(both, key=self._end)
        if new and not before:
            yield _Edit(self._end(call) - 1, self._end(call) - 1, ", ".join(new))
        elif new:
            start, end = self._start(before[-1]), self._end(before[-1])
            indent = self._content[self._starts[before[-1].lineno - 1] : start].decode()
            comma = ", " if indent.strip() else f",\n{indent}"
            yield _Edit(end, end, "".join(f"{comma}{argument}" for argument in new))

    def after_imports(self, lines: Sequence[str], before: int) -> _Edit:
        """Inserts lines after the last import of the module that is above a place."""
        imports = [
            node
            for node in self._tree.body
            if isinstance(node, ast.Import | ast.ImportFrom) and self._end(node) <= before
        ]
        has_torch = self._imported.get("torch") == "torch"
        text = "".join(f"{line}\n" for line in [*([] if has_torch else ["import torch"]), *lines])
        place = self._starts[imports[-1].end_lineno or 0] if imports else 0
        return _Edit(place, place, f"\n{text}" if imports else text)

    def edited(self, edits: list[_Edit]) -> bytes:
        content = self._content
        for edit in sorted(edits, reverse=True):
            content = content[: edit.start] + edit.text.encode() + content[edit.end :]
        return content

    def _start(self, node: ast.expr | ast.keyword) -> int:
        return self._starts[node.lineno - 1] + node.col_offset

    def _end(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        return self._starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)


def _listed(wanted: Arguments, usual: Arguments) -> list[str]:
    return [f"{name}={value}" for name, value in wanted.items() if usual.get(name) != value]


def _diff(before: bytes, after: bytes, name: str) -> str:
    # Only at "\n", as Git does.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", content.decode()) for content in (before, after))
    # Git ends a name with spaces at a tab.
    lines = unified_diff(old, new, f"a/{name}\t", f"b/{name}\t")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)


WITHOUT = "to train without a compiler"
NOTHING = "{name} has these settings already: leave it as it is."
CHANGE = "{aim}, change {name} with this command:"
CHANGE_OWN = "{aim}, change your own {name} with this command, in the folder of the file:"
BY_HAND = "{aim}, write:"
BY_CHANGES = "{aim}, train with these changes:"
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
    """How to use the plan's best backend; for a searched script also how to use no compiler. None
    if nothing is recommended."""
    spec, best = comparison.spec, planned.best
    is_program = spec.workload.is_own_program
    if best is not None:
        aim, (arm, _) = f"to use {best.label}", arm_of(spec, best.label)
    elif planned.answer is None or planned.answer.kind != "do not compile":
        return None
    elif spec.is_of_search and is_program and planned.baseline_seconds:
        aim, arm = WITHOUT, spec.arms[0]
    else:
        return None
    script = PurePath(spec.model.script or "")
    if arm.role == "backend" and spec.named_arms and change_words(arm):
        return Use(
            intro=BY_CHANGES.format(aim=aim),
            lines="\n".join([*_changed_command(spec, arm), recipe(spec, arm)]).strip(),
        )
    changed = _change(store, comparison.experiment_id, spec, arm) if is_program else None
    blocks = _blocks(store, comparison, best) if best and arm.scope == "blocks" else ()
    lines = recipe(spec, arm, changed, blocks)
    if changed is not None and changed.diff:
        length = _length_option(comparison, planned)
        show = f"breakeven show {comparison.experiment_id}{length} --diff{store.data_dir.option}"
        command = f"{show} | git apply"
        intro = CHANGE_OWN
        if _is_the_persons(script, store.data_dir):
            command, intro = f"cd {shlex.quote(str(script.parent))} && {command}", CHANGE
        return Use(
            intro=intro.format(aim=aim, name=script.name),
            command=command,
            diff=changed.diff,
            lines=lines,
        )
    if not lines:
        return Use(intro=NOTHING.format(name=printable(script.name)))
    return Use(intro=BY_HAND.format(aim=aim), lines=lines)


def _length_option(comparison: Comparison, planned: Plan) -> str:
    """The option that plans so; empty for the experiment's own plan."""
    is_own = planned.starts == comparison.spec.plan.starts
    if planned.num_steps is None or (is_own and planned.num_steps == own_steps(comparison)):
        return ""
    return f" --plan '{write_length(planned.num_steps, planned.starts)}'"


def _changed_command(spec: ExperimentSpec, arm: Arm) -> Iterator[str]:
    """Commands of a shell that make the changes of an arm and start the training."""
    script = spec.script_of(arm)
    file = spec.model.script or ""
    commands = [["cd", script.folder or str(PurePath(file).parent)]]
    commands += [["git", "checkout", arm.revision]] if arm.revision else []
    commands += [["git", "apply", arm.diff]] if arm.diff else []
    commands += [["export", variable] for variable in arm.variables]
    command, is_command, _ = script.module.partition("=")
    start = [arm.python or "python", *(["-m", script.module] if script.module else [file])]
    if is_command:
        start = [command]
    elif script.ranks > 1:
        start = ["torchrun", "--nproc-per-node", str(script.ranks), *start[1:]]
    for words in (*commands, [*start, *script.arguments]):
        text = shlex.join(words)
        yield printable(text, len(text))  # A terminal shows it, and must not obey it.


def _is_the_persons(script: PurePath, data_dir: DataDir) -> bool:
    """Whether a script is the file that its author keeps: a copy in the data folder, such as an
    uploaded file, is Breakeven's, and the path of another machine leads nowhere."""
    return Path(script).is_file() and not Path(script).resolve().is_relative_to(data_dir.path)


def _blocks(store: Store, comparison: Comparison, best: Result) -> Sequence[str]:
    """Where the run found the blocks that it compiled; empty without such a record."""
    workloads = queries.fields_by_run(queries.workloads(store, comparison.experiment_id))
    paths: Sequence[str] = workloads.get(best.run_id, {}).get("blocks", ())
    return paths


def _change(store: Store, experiment_id: str, spec: ExperimentSpec, arm: Arm) -> Change | None:
    """The change of the script as the baseline executed it; None without a readable copy, or if its
    path cannot stand in a command or a diff."""
    if not (spec.model.script or "").isprintable():
        return None
    kept = queries.sources(store, experiment_id)
    runs = queries.run_states(store, experiment_id).set_index("run_id")["folder"]
    for row in kept[kept["source"] == spec.model.script].itertuples():
        try:
            with RunDir(Path(runs[row.run_id])).open(str(row.file)) as copy:
                content = copy.read(MAX_SCRIPT_BYTES)
        except (KeyError, RunnerError, OSError):
            continue
        name = PurePath(spec.model.script or "").name
        lines = [*setting_lines(spec, arm)]
        return change(content, name, arm, lines, on_cuda=spec.device.startswith("cuda"))
    return None


def recipe(
    spec: ExperimentSpec, arm: Arm, beside: Change | None = None, blocks: Sequence[str] = ()
) -> str:
    """Lines for the user's own training, without what `beside`, a change of the script, does; empty
    for the baseline. `blocks`: paths of the compiled blocks, `layers.*` for all members of a list.
    A comment explains each name that users choose themselves."""
    compiler = [*setting_lines(spec, arm)], [*_compiled(spec, arm, blocks)]
    first, last = ([], []) if beside and beside.says_compiler else compiler
    form = [] if beside and beside.says_form else _optimizer(spec, arm)
    loading = [] if beside and beside.says_loaders else _loaders(spec, arm)
    return "\n".join([*first, *form, *loading, *last])


def setting_lines(spec: ExperimentSpec, arm: Arm) -> Iterator[str]:
    """Lines that set something for the whole process."""
    if arm.batch_times > 1:
        size = spec.training.batch_size
        yield f"batch_size = {arm.batch_times * size}  # instead of {size}: another training"
    if arm.path_of_backend:
        module, _, name = arm.path_of_backend.rpartition(":")
        module = PurePath(module).name.removesuffix(".py")
        yield f"from {module} import {name}  # if it is a class, backend={name}()"
    if arm.tf32:
        yield 'torch.set_float32_matmul_precision("high")'
        yield "torch.backends.cudnn.allow_tf32 = True"
    if arm.math_attention == "reduced":
        yield "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)"
    draws_as_eager = arm.options.get("fallback_random", True)
    has_dropout = not spec.workload.is_specified or spec.has_dropout
    if arm.backend == "inductor" and has_dropout and draws_as_eager:
        yield "torch._inductor.config.fallback_random = True  # dropout as without a compiler"


def _optimizer(spec: ExperimentSpec, arm: Arm) -> Iterator[str]:
    if arm.optimizer is not None:
        name = spec.training.optimizer
        if not spec.workload.is_specified:
            name = "AdamW"
            yield "# Where your script makes its optimizer, of whatever class, add an argument:"
        form = ", ".join(f"{name}={value}" for name, value in form_of(arm).items())
        yield f"optimizer = torch.optim.{name}(model.parameters(), ..., {form})"


def _loaders(spec: ExperimentSpec, arm: Arm) -> Iterator[str]:
    loading = loading_of(arm, on_cuda=spec.device.startswith("cuda"))
    if loading:
        given = ", ".join(f"{name}={value}" for name, value in loading.items())
        yield "# Where your script makes its data loaders, add arguments:"
        yield f"loader = torch.utils.data.DataLoader(dataset, ..., {given})"


def _compiled(spec: ExperimentSpec, arm: Arm, blocks: Sequence[str]) -> Iterator[str]:
    if arm.backend is None:
        return
    arguments = ", ".join(f"{name}={value}" for name, value in arguments_of(arm).items())
    if spec.workload.decides_scope and arm.scope == "iteration":
        given = ", ".join(filter(None, ["model", arguments]))
        yield f"model = torch.compile({given})  # before the first step"
        return
    match arm.scope:
        case "forward":
            yield f"model.compile({arguments})"
        case "blocks":
            yield from _compiled_blocks(arguments, blocks)
        case "iteration" | "forward_backward":
            within = "forward, loss.backward()"
            if arm.scope == "iteration":
                within += ", optimizer.step(), optimizer.zero_grad()"
            yield f"@torch.compile({arguments})" if arguments else "@torch.compile"
            yield "def train_step(batch):"
            yield f"    ...  # {within}"


def _compiled_blocks(arguments: str, paths: Sequence[str]) -> Iterator[str]:
    if not paths:
        yield "for block in model.layers:  # the repeated blocks, whatever the model calls them"
        yield f"    block.compile({arguments})"
        return
    lists = [path.removesuffix("*").removesuffix(".") for path in paths if path.endswith("*")]
    for path in lists:
        yield f"for block in model.get_submodule({path!r}).children():"
        yield f"    block.compile({arguments})"
    for path in paths:
        if not path.endswith("*"):
            yield f"model.get_submodule({path!r}).compile({arguments})"
