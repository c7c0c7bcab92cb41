"""What to do about a graph break, and about a value for which code is compiled again."""

import re
from collections.abc import Mapping
from typing import Any

from breakeven.storage.comparison.compiler_warnings import CompilerGaveUp
from breakeven.storage.comparison.warnings import ComparisonWarning
from breakeven.storage.numbers.sentences import Sentence, say
from breakeven.storage.profile.guards import Change, change_in

BREAKS: tuple[tuple[str, str], ...] = (
    (
        r"aten\.bincount",
        "Count with index_add_ on zeros of a fixed size, or count before the compiled call.",
    ),
    (
        r"aten\.(nonzero|masked_select|index)\b",
        "Keep the size: multiply by the mask or use "
        "torch.where; or select before the compiled call.",
    ),
    (
        r"aten\.equal",
        "Ask Python instead of the numbers (`a is b`), or pass the answer as an argument.",
    ),
    (
        r"(?i)^dynamic shape operator",
        "Compute it before the compiled call, or set "
        "torch._dynamo.config.capture_dynamic_output_shape_ops = True before the first step.",
    ),
    (
        r"Tensor\.item|capture_scalar_outputs",
        "Keep the number a tensor, or set "
        "torch._dynamo.config.capture_scalar_outputs = True before the first step.",
    ),
    (
        r"(?i)^data-dependent branching|^generic_jump|Could not guard on data-dependent",
        "Use torch.where or torch.cond instead of the branch.",
    ),
    (
        r"RNN, GRU, or LSTM",
        "Compile the layers before and after the recurrent one, which is a "
        "single kernel anyway; or set torch._dynamo.config.allow_rnn = True.",
    ),
    (r"builtin operator `print|builtin: print|logging", "Print between steps."),
    (
        r"Tensor\.backward",
        "Call backward after the compiled function, or set "
        "torch._dynamo.config.trace_autograd_ops = True before the first step.",
    ),
    (r"torch\.compiler\.disable", "Remove torch.compiler.disable there, or compile other parts."),
)
"""Patterns of Dynamo's reasons for a graph break, and what to do."""
HINT = re.compile(r"Hint: (.+)")
RARE_OTHERS = 0.9
"""Share of the calls with the most common shape from which the others are last batches."""
ELSE = "Rewrite the line, or move it out of the compiled code."
IN_LOOP = "graph break in loop"
LOOP = " A break inside a loop makes Dynamo give up the whole function around it."
GUARDS: dict[Change, tuple[str, str]] = {
    "size": (
        "a size",
        "Keep sizes the same from step to step (drop the last, smaller batch), or "
        "compile with dynamic=true.",
    ),
    "optimizer setting": (
        "{name} of the optimizer",
        "Make {name} a tensor "
        "(lr=torch.tensor(1e-3)), and call the schedule outside of the compiled "
        "function; or leave the optimizer uncompiled.",
    ),
    "optimizer state": (
        "the optimizer's state, which the first steps create",
        "Nothing: it happens in the first steps alone.",
    ),
    "hook": (
        "the hooks of a module",
        "Register hooks once, before the first step, and do not remove them while training.",
    ),
    "gradient": (
        "whether a tensor needs gradients",
        "Nothing, if each combination occurs in every "
        "step; else call requires_grad_ before the first step.",
    ),
    "mode": (
        "the mode of gradients or autocast",
        "Nothing, if evaluation alone has the other "
        "mode; else enter it outside of the compiled code.",
    ),
    "type": ("the type of a tensor", "Convert inputs to one type before the compiled call."),
    "training": (
        "train() or eval() of a module",
        "Nothing, if evaluation alone changes it; else "
        "call train() and eval() outside of the steps.",
    ),
    "number": (
        "the number {name}",
        "Keep {name} a tensor, or outside of the compiled code: Dynamo "
        "takes a Python number for a constant.",
    ),
    "object": (
        "the identity or type of an object",
        "Create the object once, before the first step.",
    ),
    "unknown": ("a value", "Keep what the guard names the same from step to step."),
}
"""For each kind of change what changed, and what to do; `{name}` is the changed value's name."""


def about_break(reason: str) -> str:
    """What to do about a graph break, from Dynamo's reason; torch's own hint if it is no known
    one."""
    for pattern, advice in BREAKS:
        if re.search(pattern, reason):
            return advice
    hint = HINT.search(reason)
    return hint[1].strip() if hint and "report" not in hint[1] else ELSE


def about_guard(reason: str) -> tuple[str, str]:
    """What changed where a guard failed, and what to do."""
    kind, name = change_in(reason)
    what, advice = GUARDS[kind]
    return what.format(name=name), advice.format(name=name)


def about_shapes(shapes: Mapping[str, Any]) -> str:
    """What to do about inputs of several shapes."""
    if shapes["most_common"] >= RARE_OTHERS * shapes["calls"]:
        return "Drop the last, smaller batch (drop_last=True), or fill it up."
    if shapes["has_graphs"]:
        return "Pad to few sizes, such as multiples of 64, or do without CUDA graphs."
    if not shapes["varying"]:
        return "Compile with dynamic=true."
    dimension, name = shapes["varying"][0]["dimension"], shapes["varying"][0]["input"]
    return (
        "Compile with dynamic=true, or mark the dimension before the first call: "
        f"torch._dynamo.mark_dynamic({name if name.isidentifier() else 'input'}, {dimension})."
    )


def warning_words(warning: ComparisonWarning) -> Sentence:
    """A warning; where the compiler gave up, with what to do."""
    if not isinstance(warning, CompilerGaveUp):
        return warning.words()
    operator = warning.functions[0].operator or ""
    return say(warning.words(), " ", about_break(f"{warning.reason} {operator}"))
