"""Reads the sources of the pages, and checks that everything that reaches Markdown or HTML is known
to be inert. Known are literals, constants, numbers, results of `inert` and `code`, the results of a
function whose type promises it (`Markdown`, `Html`: the check then looks at these results),
parameters and fields of such a type (the check then looks at the callers), and combinations of
these. Everything else is reported, even if it is harmless; the remedy is `inert(...)`."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3] / "views"
HOUSE = "breakeven.views"
SINKS = {
    **dict.fromkeys(
        (
            "markdown",
            "caption",
            "header",
            "subheader",
            "title",
            "error",
            "warning",
            "info",
            "success",
            "toast",
            "badge",
            "html",
            "expander",
            "popover",
            "button",
            "download_button",
            "link_button",
            "page_link",
            "tabs",
            "spinner",
            "status",
            "text_input",
            "text_area",
            "number_input",
            "selectbox",
            "multiselect",
            "toggle",
            "checkbox",
            "file_uploader",
            "metric",
            "write",
            "write_stream",
            "chat_message",
            "dialog",
            "latex",
            "table",
            "exception",
            "Column",
        ),
        ("label", "body", "text", "help", "caption", "value", "delta"),
    ),
    "progress": ("text",),
    "pills": ("label", "help", "options"),
    "segmented_control": ("label", "help", "options"),
    "radio": ("label", "help", "options", "captions"),
}
"""Functions that show Markdown or HTML, of Streamlit itself or of a container, and their arguments
that do."""
SHOWN_FIRST = {"progress": 1, "page_link": 1, "Column": 1}
"""The position of the text, if it is not the first argument."""
VALUES = ("text_input", "text_area", "number_input", "toggle", "checkbox")
"""Widgets whose value is typed text, which they show as it is."""
FIGURES = ("plotly_chart", "to_html", "to_image", "write_html", "write_image")
"""Functions that export a figure; their figures must come from `inert_figure`."""
PASS_ON = {
    "len",
    "sum",
    "int",
    "float",
    "round",
    "bool",
    "divmod",
    "strftime",
    "quote",
    "inert",
    "code",
}
"""Functions whose results are numbers, or inert."""
THROUGH = {
    "list",
    "tuple",
    "sorted",
    "set",
    "reversed",
    "dict",
    "enumerate",
    "zip",
    "str",
    "max",
    "min",
    "next",
    "iter",
    "fromkeys",
    "filter",
}
METHODS = {
    "partition",
    "items",
    "values",
    "keys",
    "strip",
    "capitalize",
    "lower",
    "removeprefix",
    "removesuffix",
    "rstrip",
    "lstrip",
    "title",
    "copy",
    "upper",
}
OF_OURS = {"title", "axis_title", "definition", "unit", "text", "anchor", "introduction"}
"""Attributes that hold texts of this project: of metrics, numbers, presets and options."""
FORMATS = {
    "format_share",
    "format_ratio",
    "format_seconds",
    "format_bytes",
    "format_count",
    "duration",
}
"""Functions of `storage.numbers.formats` and `runner.texts`: numbers as text."""
MAKERS = ("shared.inert", "shared.definition_links", "report.markup")
"""Modules that make texts inert, each in a line or two that a person can check."""
PROMISE = re.compile(r"\b(Markdown|Html)")
NUMBER = re.compile(r"\b(int|float|bool)\b")
GIVING = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.NamedExpr,
    ast.For,
    ast.comprehension,
    ast.withitem,
    ast.ExceptHandler,
    ast.Call,
)
"""Nodes that give a name a value."""
NUMERIC = re.compile(r"^[<>^=+,.\d]*[,dfge%]$")


@dataclass
class Source:
    """One module of the pages."""

    path: Path
    tree: ast.Module
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    around: dict[str, ast.FunctionDef] = field(default_factory=dict)
    """Functions inside functions: the outer function by the name of the inner one."""
    imports: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By name: the module, and the name there; for an imported module, its name and an empty
    name."""


class Sources:
    """All modules, and their faults."""

    def __init__(self, files: list[Path]) -> None:
        self.modules = {_module_name(file): _read(file) for file in files}
        classes = [
            definition for module in self.modules.values() for definition in module.classes.values()
        ]
        fields = [field for definition in classes for field in _fields(definition)]
        others = {field.target.id for field in fields if not _promises(field.annotation)}  # type: ignore[attr-defined]
        self.promised = {field.target.id for field in fields} - others  # type: ignore[attr-defined]
        """Names of fields and properties that contain inert texts in every class."""
        self.promised |= {
            member.name
            for definition in classes
            for member in definition.body
            if isinstance(member, ast.FunctionDef)
            and _promises(member.returns)
            and any(ast.unparse(mark) == "property" for mark in member.decorator_list)
        } - others

    def faults(self) -> Iterator[str]:
        for module in self.modules.values():
            functions = [] if _module_name(module.path) in MAKERS else _functions(module.tree)
            for function in [None, *functions]:
                yield from Scope(self, module, function).faults()


class Scope:
    """A function, or the code outside of all functions."""

    def __init__(self, sources: Sources, module: Source, function: ast.FunctionDef | None) -> None:
        self.sources, self.module, self.function = sources, module, function
        around = module.around.get(function.name) if function else None
        self.outer = Scope(sources, module, around) if around else None
        self.nodes = list(_own_nodes(function or module.tree))
        self.giving = [node for node in self.nodes if isinstance(node, GIVING)]
        self.open_names: set[str] = set()

    def faults(self) -> Iterator[str]:
        for node in self.nodes:
            if isinstance(node, ast.Call):
                for argument in self._shown(node):
                    if not self.known(argument):
                        yield self._said(argument, ast.unparse(node.func))
                if _name(node) == "plotly_chart" or isinstance(node.func, ast.Attribute):
                    yield from self._figure(node)
        if self.function and _promises(self.function.returns):
            for node in self.nodes:
                if isinstance(node, ast.Return | ast.Yield) and not self.known(node.value):
                    yield self._said(node, f"the result of {self.function.name}")

    def _said(self, node: ast.AST, where: str) -> str:
        return f"{self.module.path.name}:{node.lineno}: {ast.unparse(node)!r} reaches {where}"  # type: ignore[attr-defined]

    def _figure(self, node: ast.Call) -> Iterator[str]:
        if _name(node) not in FIGURES:
            return
        figure = node.func.value if _name(node) != "plotly_chart" else node.args[0]  # type: ignore[attr-defined]
        given = list(self._given(figure.id)) if isinstance(figure, ast.Name) else [figure]
        cleaned = [
            isinstance(value, ast.Call) and _name(value) == "inert_figure" for value in given
        ]
        if not (cleaned and all(cleaned)):
            yield self._said(figure, f"{_name(node)} without `inert_figure`")

    def _shown(self, node: ast.Call) -> Iterator[ast.expr | None]:
        """The arguments of a call that readers see as Markdown or HTML."""
        target = self._function(node.func)
        if target is not None:
            yield from _promised_arguments(target, node)
            return
        yield from self._fields_given(node)
        name = _name(node)
        if name not in SINKS or not isinstance(node.func, ast.Attribute):
            return
        position = SHOWN_FIRST.get(name, 0)
        yield from node.args[position : position + 1] if name != "write" else node.args
        options = node.args[1] if len(node.args) > 1 and "options" in SINKS[name] else None
        for keyword in node.keywords:
            if keyword.arg is None:
                yield from self._spread(keyword.value)
            elif keyword.arg == "options" and "options" in SINKS[name]:
                options = keyword.value
            elif keyword.arg in SINKS[name] and not (keyword.arg == "value" and name in VALUES):
                yield keyword.value
        written = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if options is not None and written.get("format_func") != "inert":
            yield options

    def _fields_given(self, node: ast.Call) -> Iterator[ast.expr]:
        """The arguments that become fields of our own classes and must be inert."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        home = self.sources.modules.get(self.module.imports.get(name, ("", ""))[0], self.module)
        if name not in home.classes:
            return
        fields = _fields(home.classes[name])
        inert_fields = {field.target.id for field in fields if _promises(field.annotation)}  # type: ignore[attr-defined]
        for declared, argument in zip(fields, node.args, strict=False):
            if declared.target.id in inert_fields:  # type: ignore[attr-defined]
                yield argument
        yield from (
            keyword.value
            for keyword in node.keywords
            if keyword.arg in inert_fields or keyword.arg is None
        )

    def _spread(self, value: ast.expr) -> Iterator[ast.expr | None]:
        """The values that `**shared` adds to a call, if this function contains the dictionary."""
        for given in self._given(value.id) if isinstance(value, ast.Name) else [value]:
            if isinstance(given, ast.Dict):
                for key, entry in zip(given.keys, given.values, strict=True):
                    if isinstance(key, ast.Constant) and key.value in ("label", "help", "body"):
                        yield entry

    def _function(self, called: ast.expr) -> ast.FunctionDef | None:
        """The called function, if it is one of ours."""
        module, name = self.module, ""
        if isinstance(called, ast.Name):
            name = called.id
            if name in module.imports and module.imports[name][1]:
                home, name = module.imports[name]
                module = self.sources.modules.get(home, module)
        elif isinstance(called, ast.Attribute):
            name = called.attr
            if isinstance(called.value, ast.Name) and called.value.id in module.imports:
                imported = self.sources.modules.get(module.imports[called.value.id][0])
                return imported.functions.get(name) if imported else None
            owners = [owner for owner in self.sources.modules.values() if name in owner.functions]
            methods = [owner for owner in owners if _is_method(owner.functions[name])]
            if len(methods) != 1 or name in SINKS:
                return None
            module = methods[0]
        return module.functions.get(name)

    def known(self, node: ast.expr | None) -> bool:  # noqa: C901 - a case for each form
        """Whether the value contains only texts that were made inert."""
        match node:
            case None | ast.Constant() | ast.Compare():
                return True
            case ast.Lambda():
                return self.known(node.body)
            case ast.JoinedStr():
                return all(self._known_part(part) for part in node.values)
            case ast.BinOp():
                is_number = not isinstance(node.op, ast.Add | ast.Mod | ast.Mult)
                return is_number or (self.known(node.left) and self.known(node.right))
            case ast.BoolOp() | ast.List() | ast.Tuple() | ast.Set():
                return all(map(self.known, getattr(node, "elts", getattr(node, "values", []))))
            case ast.Dict():
                return all(map(self.known, [*node.keys, *node.values]))
            case ast.IfExp():
                return self.known(node.body) and self.known(node.orelse)
            case ast.Starred() | ast.Await() | ast.NamedExpr() | ast.YieldFrom():
                return self.known(node.value)
            case ast.UnaryOp():
                return True
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp():
                return self.known(node.elt)
            case ast.DictComp():
                return self.known(node.key) and self.known(node.value)
            case ast.Subscript():
                return self.known(node.value)
            case ast.Attribute():
                ours = node.attr in OF_OURS or node.attr in self.sources.promised
                return ours or node.attr.isupper() or self.known(node.value)
            case ast.Name():
                return self._known_name(node.id)
            case ast.Call(func=ast.Call() as maker):  # it promises the results of its function
                return self._known_call(maker)
            case ast.Call():
                return self._known_call(node)
        return False

    def _known_part(self, part: ast.expr) -> bool:
        if not isinstance(part, ast.FormattedValue):
            return True
        if isinstance(part.format_spec, ast.JoinedStr):
            spec = "".join(
                str(constant.value)
                for constant in part.format_spec.values
                if isinstance(constant, ast.Constant)
            )
            if NUMERIC.match(spec):
                return True
        return self.known(part.value)

    def _known_call(self, node: ast.Call) -> bool:
        name = _name(node)
        target = self._function(node.func)
        if target is not None and (_promises(target.returns) or _is_number(target.returns)):
            return True
        if name in PASS_ON or name in FORMATS:
            return True
        if name in THROUGH:
            return all(self.known(argument) for argument in node.args)
        if name == "map":
            return self.known(ast.Call(node.args[0], node.args[1:], []))
        if not isinstance(node.func, ast.Attribute):
            return self._known_name(name)
        value = node.func.value
        if name == "join":
            return self.known(value) and all(map(self.known, node.args))
        if name == "format":
            # `format` of a metric or a number writes numbers; that of a text is like an f-string.
            is_text = isinstance(value, ast.Constant | ast.JoinedStr)
            return self.known(value) and (not is_text or all(map(self.known, node.args)))
        if name == "sub":  # the replacement consists of parts of the text
            return self.known(node.args[-1])
        if name == "replace" or name == "get":
            return self.known(value) and all(map(self.known, node.args[1:]))
        return name in METHODS and self.known(value)

    def _formatters(self) -> set[str]:
        """Names that hold the `format` of a metric: `write = METRICS["speedup"].format`."""
        formatters = set()
        for node in [*self.giving, *self.module.tree.body]:
            match node:
                case ast.Assign(value=ast.Attribute(value=owner, attr="format")):
                    named = {target.id for target in node.targets if isinstance(target, ast.Name)}
                    formatters |= named if self.known(owner) else set()
        return formatters

    def _known_name(self, name: str) -> bool:
        function = self.module.functions.get(name)
        if function is not None and _promises(function.returns):
            return True
        if name.isupper() or name in self.open_names or name in self._formatters():
            return True
        self.open_names.add(name)  # other parts decide
        try:
            return self._is_known(name)
        finally:
            self.open_names.discard(name)

    def _is_known(self, name: str) -> bool:
        if self.function is not None:
            arguments = self.function.args
            for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
                if argument.arg == name and not (
                    _promises(argument.annotation) or _is_number(argument.annotation)
                ):
                    return False
                if argument.arg == name:
                    return all(map(self.known, self._given(name)))
        given = list(self._given(name))
        if not given and self.outer is not None:
            return self.outer._is_known(name)
        return bool(given) and all(map(self.known, given))

    def _given(self, name: str) -> Iterator[ast.expr | None]:  # noqa: C901 - likewise
        """All values that a name has in this function."""
        for node in self.giving:
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from _matched(target, value, name)
                case ast.AnnAssign(target=target, value=value) if value is not None:
                    if _promises(node.annotation) and not isinstance(value, ast.Dict | ast.List):
                        yield value
                    else:
                        yield from _matched(target, value, name)
                case (
                    ast.AugAssign(target=target, value=value)
                    | ast.NamedExpr(target=target, value=value)
                ):
                    yield from _matched(target, value, name)
                case (
                    ast.For(target=target, iter=value)
                    | ast.comprehension(target=target, iter=value)
                ):
                    rows = value.elts if isinstance(value, ast.Tuple | ast.List) else [value]
                    for row in rows:
                        yield from _matched(target, row, name)
                case ast.withitem(optional_vars=target, context_expr=value) if target is not None:
                    yield from _matched(target, value, name)
                case ast.ExceptHandler(name=caught) if caught == name:
                    yield ast.Name("foreign_error")
                case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr=method)):
                    if owner == name and method in ("append", "extend", "insert", "update", "add"):
                        yield from node.args


def _matched(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    """The part of a value that a name gets; for a tuple that is taken apart, its own part if it is
    written there."""
    if isinstance(target, ast.Name) and target.id == name:
        yield value
    elif isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
        paired = len(parts) == len(target.elts)
        for number, element in enumerate(target.elts):
            part = parts[number] if paired else value
            yield from _matched(
                element.value if isinstance(element, ast.Starred) else element, part, name
            )


def _promised_arguments(target: ast.FunctionDef, call: ast.Call) -> Iterator[ast.expr]:
    """The arguments of a call to one of our functions that must be inert."""
    names = [argument.arg for argument in [*target.args.posonlyargs, *target.args.args]]
    names = names[1:] if _is_method(target) else names
    inert_names = {
        argument.arg
        for argument in [*target.args.args, *target.args.kwonlyargs]
        if _promises(argument.annotation)
    }
    for name, argument in zip(names, call.args, strict=False):
        if name in inert_names:
            yield argument
    for keyword in call.keywords:
        if keyword.arg in inert_names:
            yield keyword.value


def _module_name(file: Path) -> str:
    """The name by which it is imported, without `views`: `charts.bars`."""
    parts = file.with_suffix("").parts
    if "views" not in parts:
        return file.stem
    return ".".join(parts[-parts[::-1].index("views") :])  # the checkout may be in such a folder


def _read(file: Path) -> Source:
    source = Source(file, ast.parse(file.read_text()))
    source.functions = {function.name: function for function in _functions(source.tree)}
    source.classes = {
        statement.name: statement
        for statement in source.tree.body
        if isinstance(statement, ast.ClassDef)
    }
    for outer in source.functions.values():
        source.around |= {inner.name: outer for inner in _functions(outer) if inner is not outer}
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(HOUSE):
            home = (node.module or "").removeprefix(HOUSE).lstrip(".")
            for alias in node.names:
                named = alias.asname or alias.name
                is_module = (ROOT / home.replace(".", "/") / f"{alias.name}.py").is_file()
                full_name = f"{home}.{alias.name}".lstrip(".")
                source.imports[named] = (full_name, "") if is_module else (home, alias.name)
        elif isinstance(node, ast.Import):
            source.imports |= {
                alias.asname: (alias.name, "")
                for alias in node.names
                if alias.asname and alias.name.startswith(HOUSE)
            }
    return source


def _fields(definition: ast.ClassDef) -> list[ast.AnnAssign]:
    return [
        statement
        for statement in definition.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    ]


def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a function, without those of functions inside it."""
    for node in ast.iter_child_nodes(scope):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own_nodes(node)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _is_method(function: ast.FunctionDef) -> bool:
    return bool(function.args.args) and function.args.args[0].arg == "self"


def _promises(annotation: ast.expr | None) -> bool:
    return annotation is not None and bool(PROMISE.search(ast.unparse(annotation)))


def _is_number(annotation: ast.expr | None) -> bool:
    written = "" if annotation is None else ast.unparse(annotation)
    return bool(NUMBER.search(written)) and "str" not in written and "Any" not in written
