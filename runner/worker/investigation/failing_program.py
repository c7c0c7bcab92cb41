"""Writes a failing graph as a program that needs only torch, and a backend of another package."""

import copy
import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.debug_utils import NNModuleToString
from torch.fx import GraphModule

from breakeven.runner.errors import TRACEBACK
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.follow_ups import DATA_FILE
from breakeven.runner.worker.compiler.compile_with_backend import compile_arguments
from breakeven.runner.worker.investigation.graphs import SEED, Graph, GraphTrials
from breakeven.runner.worker.investigation.trial_outcomes import PASSES, Outcome, is_same

FILE = "repro.py"
DIFFERENCE = re.compile(r"^result (\d+) differs by up to (\S+)$", re.MULTILINE)
MAX_LITERAL = 16
"""Longest tensor that is written out, in elements."""
TEMPLATE = '''\
"""{title}

python repro.py         exit status 1: the fault is there; 0: it is not
python repro.py eager   the same without a compiler
"""

import sys

import torch
from torch import device, inf, nan, tensor  # noqa: F401
from torch.nn import *  # noqa: F403
{settings}

{module}


def inputs():
    torch.manual_seed({seed})
    return [
{inputs}
    ]


def run(call, args):
    args = [a.requires_grad_() if {wants}[i] else a for i, a in enumerate(args)]
    for _ in range({num_calls}):
        torch.manual_seed({seed})
{clears}        outputs = [o for o in torch.utils._pytree.tree_leaves(call(*args))
                   if isinstance(o, torch.Tensor) and o.is_floating_point()]
        torch.manual_seed({seed})
        terms = [(o * torch.randn(o.shape).to(o)).sum() for o in outputs if o.grad_fn is not None]
        if terms:
            sum(terms).backward()
    floats = [a for a in args if isinstance(a, torch.Tensor) and a.is_floating_point()]
    tensors = [*outputs, *floats, *(a.grad for a in floats if a.grad is not None)]
    return [tensor.detach().clone() for tensor in tensors]


def repro():
    torch.manual_seed({seed})  # A module may have weights of its own.
    return Repro()


{precision}expected = run(repro(), inputs())
call = repro() if "eager" in sys.argv else torch.compile(repro(), {arguments})
actual = run(call, inputs())
for number, (a, e) in enumerate(zip(actual, expected, strict=True)):
    scale = e.double().square().mean().sqrt().item()
    if not torch.allclose(a, e, rtol={tolerance}, atol={tolerance} * scale, equal_nan=True):
        sys.exit(f"result {{number}} differs by up to {{(a - e).abs().max().item():.3g}}")
print("no fault")
'''
CLEARS = """\
        torch.compiler.cudagraph_mark_step_begin()
        for a in args:
            if isinstance(a, torch.Tensor):
                a.grad = None
"""


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program, and the data that it loads."""

    source: str
    data: dict[int, Tensor]
    num_nodes: int

    def is_in(self, folder: Path) -> bool:
        """Whether this program was written to the folder before."""
        path = folder / FILE
        return path.exists() and path.read_text() == self.source

    def write(self, folder: Path) -> Path:
        """Writes the files and returns the program's path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / FILE
        path.write_text(self.source)
        if self.data:
            torch.save(self.data, folder / DATA_FILE)
        return path


def make_program(
    graph: Graph, arm: Arm, outcome: Outcome, tolerance: float, title: str
) -> Program | None:
    """The program; None if a module of the graph cannot be written as text.

    Inputs are random numbers where the fault needs no more, else the training's own.
    """
    if not NNModuleToString.can_convert_to_string(graph.module):
        return None
    texts = [_random_text(value) for value in graph.inputs]
    # A process that dies of the fault cannot try other inputs.
    if outcome.kills or not _fails_with(graph, texts, arm, outcome, tolerance):
        texts = [_own_text(place, value) for place, value in enumerate(graph.inputs)]
    data = {
        place: value.detach().cpu()
        for place, (value, text) in enumerate(zip(graph.inputs, texts, strict=True))
        if "data[" in text
    }
    arguments = {
        name: repr(value)
        for name, value in compile_arguments(arm).items()
        if value is not None and name != "fullgraph"
    }
    if arm.path_of_backend:
        arguments["backend"] = "backend"
    without_gradients = [] if graph.trains else ["torch.set_grad_enabled(False)"]
    loads = [f"data = torch.load({DATA_FILE!r})"] if data else []
    source = TEMPLATE.format(
        title=title.replace("\\", "/").replace('"', "'"),
        seed=SEED,
        tolerance=tolerance,
        num_calls=graph.num_calls,
        clears="" if graph.accumulates else CLEARS,
        module=_module_text(graph.module),
        inputs="\n".join(f"        {text}," for text in texts),
        wants=[isinstance(tensor, Tensor) and tensor.requires_grad for tensor in graph.inputs],
        arguments=", ".join(f"{name}={text}" for name, text in arguments.items()),
        settings="\n".join([*_settings(arm), *loads, *without_gradients]),
        precision=_precision(arm),
    )
    return Program(source=source, data=data, num_nodes=graph.num_nodes)


def _module_text(module: GraphModule) -> str:
    """The module's class, with short names, and without the statements that free values."""
    module = copy.deepcopy(module)
    for place, node in enumerate(module.graph.find_nodes(op="placeholder")):
        node.target = node.name = f"a{place}"
        node.type = None
    module.recompile()
    text = NNModuleToString.convert(module).strip()
    text = re.sub(r";  [\w, =]+ = None(?=\s|$)", "", text.replace("from torch.nn import *\n", ""))
    return re.sub(r"\n(\s*\n)+", "\n\n", text)


def _settings(arm: Arm) -> list[str]:
    """Loads a backend that has no name; makes Inductor draw the random numbers of eager code."""
    if arm.path_of_backend:
        place, _, name = arm.path_of_backend.rpartition(":")
        load = "run_path" if place.endswith(".py") else "run_module"
        return [
            "import runpy",
            f"backend = runpy.{load}({place!r})[{name!r}]",
            "backend = backend() if isinstance(backend, type) else backend",
        ]
    if arm.backend != "inductor":
        return []
    return ["import torch._inductor.config", "torch._inductor.config.fallback_random = True"]


def _precision(arm: Arm) -> str:
    """Sets what products and attention may round to."""
    switches = []
    if arm.tf32:
        switches += ["matmul.allow_tf32 = True"]
    if arm.math_attention == "reduced":
        switches += ["allow_fp16_bf16_reduction_math_sdp(True)"]
    return "".join(f"torch.backends.cuda.{switch}\n" for switch in switches)


def _random_text(value: Any) -> str:
    """An expression for a value of the same kind, with random numbers."""
    if not isinstance(value, Tensor):
        return repr(int(value) if isinstance(value, torch.SymInt) else value)
    if value.numel() == 0 or value.numel() == 1 or value.dtype == torch.bool:
        return _literal(value) if value.numel() <= MAX_LITERAL else _random_bool(value)
    size, like = tuple(value.shape), _like(value)
    if value.is_floating_point():
        exact = value.detach().double()
        mean, deviation = exact.mean().item(), exact.std().item()
        return f"torch.randn({size}{like}) * {deviation:.3g} + {mean:.3g}"
    if value.is_complex():
        return _literal(value)
    low, high = int(value.min()), int(value.max())
    return f"torch.randint({low}, {high + 1}, {size}{like})"


def _random_bool(value: Tensor) -> str:
    device = "" if value.is_cpu else f", device={value.device.type!r}"
    return f"torch.rand({tuple(value.shape)}{device}) < {value.double().mean().item():.3g}"


def _own_text(place: int, value: Any) -> str:
    if not isinstance(value, Tensor):
        return _random_text(value)
    if value.numel() <= MAX_LITERAL:
        return _literal(value)
    on = "" if value.is_cpu else f".to({value.device.type!r})"
    return f"data[{place}]{on}.clone()"


def _literal(value: Tensor) -> str:
    numbers = value.detach().cpu().tolist()
    return f"tensor({numbers!r}{_like(value)}).reshape({tuple(value.shape)})"


def _like(value: Tensor) -> str:
    dtype = "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
    return dtype + ("" if value.is_cpu else f", device={value.device.type!r}")


def _fails_with(
    graph: Graph, texts: list[str], arm: Arm, outcome: Outcome, tolerance: float
) -> bool:
    """Whether the graph fails in the same way with inputs that the expressions make."""
    torch.manual_seed(SEED)
    names = {"torch": torch, "tensor": torch.tensor, "nan": float("nan"), "inf": float("inf")}
    made = [eval(text, names) for text in texts]
    inputs = tuple(
        value.requires_grad_(own.requires_grad) if isinstance(value, Tensor) else value
        for value, own in zip(made, graph.inputs, strict=True)
    )
    try:
        result = GraphTrials(replace(graph, inputs=inputs), tolerance).outcome(arm)
    except Exception:  # Random numbers may be no valid input, such as an index out of range.
        return False
    return is_same(result, outcome)


def try_program(command: list[str], folder: Path, seconds: float) -> Outcome:
    """The outcome of a program in a new process."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            timeout=seconds,
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        return Outcome(kind="times out")
    sys.stderr.write(done.stderr)
    if done.returncode == 0:
        return PASSES
    if done.returncode < 0:
        return Outcome(kind="crashes", error=f"the process ended by signal {-done.returncode}")
    if difference := DIFFERENCE.search(done.stderr):
        number, error = difference.groups()
        return Outcome(kind="differs", quantity="result", tensor=number, max_error=float(error))
    error = re.search(
        r"^(?:\w+\.)*(\w+\b(?!\.)[\s\S]*)", done.stderr.rpartition(TRACEBACK)[2], re.M
    )
    return Outcome(kind="raises", error=error and error[1].strip())
