"""Changes a user's script so that it trains with the settings of a run, as a diff for `git apply`.

Under Breakeven every call of `torch.compile` in a script does what the run's backend says. So the
diff gives these calls the arguments of the run. In a script without such a call, the arguments of
transformers' Trainer get them.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import accumulate
from typing import NamedTuple

from breakeven.runner.specs.candidates import FORMS
from breakeven.runner.specs.variants import Variant

COMPILES = ("breakeven.compile", "torch.compile")
TRAINERS = ("transformers.TrainingArguments", "transformers.Seq2SeqTrainingArguments")
OPTIMIZERS = tuple(f"torch.optim.{name}" for name in FORMS)
USUAL = {"backend": "'inductor'", "mode": "None", "options": "None", "disable": "False"}
"""Arguments of `torch.compile` that change nothing."""
TRAINERS_USUAL = {
    "torch_compile": "False", "torch_compile_backend": "None", "torch_compile_mode": "None",
}  # fmt: skip
FUSED = {"optim": "'adamw_torch_fused'"}
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
    """Whether it says the form of its optimizer."""


class _Edit(NamedTuple):
    start: int
    end: int
    text: str


def change(content: bytes, name: str, variant: Variant, lines: Sequence[str]) -> Change | None:
    """The change of a script with this content and file name, to train with a variant; `lines` set
    something for the whole process. None for a script that cannot be changed: it is not Python, its
    arguments are in a dictionary, or lines around a change have invisible characters."""
    form, is_compiled = form_of(variant), variant.backend is not None
    try:
        script = _Script(content)
        compiled, trainers = script.compiled(), script.calls(TRAINERS)
        optimizers = script.calls(OPTIMIZERS) if form else []
        edits = [edit for one in optimizers for edit in script.set(one, form, {})]
        if compiled:
            given = arguments_of(variant) if is_compiled else {"disable": "True"}
            usual = USUAL if is_compiled else {"disable": "False"}
            edits += [edit for one in compiled for edit in script.set(one, given, usual)]
        elif trainers:
            given = {f"torch_compile_{key}": repr(one) for key in ("backend", "mode")
                     if (one := getattr(variant, key)) not in (None, "inductor")}  # fmt: skip
            given = {"torch_compile": "True", **given} if is_compiled else {}
            edits += [edit for one in trainers for edit in script.set(one, given, TRAINERS_USUAL)]
            lines = [*lines, *(f"torch._inductor.config.{key} = {one!r}"
                               for key, one in options_of(variant).items())]  # fmt: skip
        if form.get("fused") == "True":
            unfused = [one for one in trainers if script.text(one, "optim") == "adamw_torch"]
            optimizers += unfused
            edits += [edit for one in unfused for edit in script.set(one, FUSED, {})]
    except (SyntaxError, ValueError):
        return None
    says_compiler = not is_compiled or bool(compiled or trainers)
    if lines and says_compiler:
        first = min((one.start for one in edits), default=len(content))
        edits.append(script.after_imports(lines, before=first))
    diff = _diff(content, script.edited(edits), name)
    # A terminal shows the diff, and must not obey it.
    if not re.sub(r"\r?\n|\t", "", diff).isprintable():
        return None
    return Change(diff, says_compiler, bool(optimizers) or not form)


def arguments_of(variant: Variant) -> dict[str, str]:
    """Arguments of `torch.compile`, which accepts a mode or options, but not both."""
    found, options, path = {}, options_of(variant), variant.path_of_backend
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


def options_of(variant: Variant) -> dict[str, object]:
    return {name: one for name, one in variant.options.items() if name != "fallback_random"}


def form_of(variant: Variant) -> dict[str, str]:
    """Arguments of an optimizer."""
    match variant.optimizer:
        case None:
            return {}
        case "for_loop":
            return {"foreach": "False", "fused": "False"}
        case form:
            return {form: "True"}


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
                for one in node.names:
                    whole = one.name if one.asname else one.name.partition(".")[0]
                    self._imported[one.asname or whole] = whole
            elif isinstance(node, ast.ImportFrom):
                for one in node.names:
                    self._imported[one.asname or one.name] = f"{node.module}.{one.name}"

    def compiled(self) -> list[ast.expr]:
        """Calls of `torch.compile`, of Breakeven's `compile`, and of a module's method."""
        methods = [
            node.value
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Attribute) and node.value.func.attr == "compile"
            and self._path(node.value.func) is None
        ]  # fmt: skip
        return [*self.calls(COMPILES), *methods]

    def calls(self, paths: tuple[str, ...]) -> list[ast.expr]:
        """Calls of these functions, and decorators that name one without a call."""
        found: list[ast.expr] = []
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Call) and self._path(node.func) in paths:
                found.append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found += [one for one in node.decorator_list if self._path(one) in paths]
        return found

    def _path(self, node: ast.expr) -> str | None:
        """`torch.optim.AdamW` for a name that was imported, by whatever name; else None."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id)
        if isinstance(node, ast.Attribute) and (of := self._path(node.value)):
            return f"{of}.{node.attr}"
        return None

    def text(self, call: ast.expr, name: str) -> object:
        """The constant that a call gives an argument; None for any other value."""
        given = call.keywords if isinstance(call, ast.Call) else []
        values = [one.value for one in given if one.arg == name]
        return values[0].value if values and isinstance(values[0], ast.Constant) else None

    def set(self, call: ast.expr, wanted: Arguments, usual: Arguments) -> Iterator[_Edit]:
        """Sets arguments of a call: `wanted`, and those of `usual` that the call has. Raises
        `ValueError` for a call with a dictionary of arguments."""
        if not isinstance(call, ast.Call):  # a decorator without a call
            listed = ", ".join(_listed(wanted, usual))
            yield _Edit(self._end(call), self._end(call), f"({listed})" if listed else "")
            return
        if any(one.arg is None for one in call.keywords):
            raise ValueError("arguments in a dictionary")
        given = {one.arg: one.value for one in call.keywords if one.arg}
        for name, value in given.items():
            text = wanted.get(name) or usual.get(name)
            if text is not None:
                yield _Edit(self._start(value), self._end(value), text)
        new = _listed({name: one for name, one in wanted.items() if name not in given}, usual)
        both: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
        before = sorted(both, key=self._end)
        if new and not before:
            yield _Edit(self._end(call) - 1, self._end(call) - 1, ", ".join(new))
        elif new:
            start, end = self._start(before[-1]), self._end(before[-1])
            indent = self._content[self._starts[before[-1].lineno - 1] : start].decode()
            comma = ", " if indent.strip() else f",\n{indent}"
            yield _Edit(end, end, "".join(f"{comma}{one}" for one in new))

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
    return [f"{name}={one}" for name, one in wanted.items() if usual.get(name) != one]


def _diff(before: bytes, after: bytes, name: str) -> str:
    # Only at "\n", as Git does.
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", one.decode()) for one in (before, after))
    # Git ends a name with spaces at a tab.
    lines = unified_diff(old, new, f"a/{name}\t", f"b/{name}\t")
    return "".join(line if line.endswith("\n") else f"{line}\n{NO_NEWLINE}" for line in lines)
