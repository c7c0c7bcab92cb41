"""A graph that fails becomes as small as its fault, and a program that fails by itself."""

import runpy
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._inductor.config
from torch import Tensor, nn

from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.worker.investigation import graphs
from breakeven.runner.worker.investigation.failing_program import make_program, try_program
from breakeven.runner.worker.investigation.trial_outcomes import PASSES, Outcome, is_same
from tests.faults.stage_faults import wrong_decomposition

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("fresh_torch", "without_caches")]
TOLERANCE = 1e-4
DECOMPOSED = parse_backend("aot_eager_decomp_partition")
WRONG_RELU = parse_backend("relu_accuracy_error_TESTING_ONLY")


@pytest.fixture
def without_caches() -> Iterator[None]:
    with torch._inductor.config.patch(force_disable_caches=True):
        yield


def captured(function: Callable[..., Tensor], *inputs: Tensor) -> graphs.Graph:
    recorder = graphs.Recorder()
    torch.compile(function, backend=recorder)(*inputs)
    torch._dynamo.reset()
    (graph,) = recorder.graphs(num_calls=1, accumulates=False)
    return graph


def relu_between_other_operations() -> graphs.Graph:
    linear = nn.Linear(8, 8)

    def function(x: Tensor) -> Tensor:
        y = torch.relu(linear(torch.sin(x)))
        return nn.functional.layer_norm(y, (8,)).square().sum()

    return captured(function, torch.randn(4, 8))


def names_of(graph: graphs.Graph) -> list[str]:
    nodes = [node for node in graph.module.graph.nodes if node.op == "call_function"]
    return [node.target.__name__ for node in nodes]


def test_a_wrong_gradient_of_relu_leaves_relu_alone() -> None:
    graph = relu_between_other_operations()
    with wrong_decomposition():
        outcome = graphs.GraphTrials(graph, TOLERANCE).outcome(DECOMPOSED)
        small = graphs.minify(graph, DECOMPOSED, outcome, TOLERANCE, time.monotonic() + 60)
        culprit = graphs.bisect(small, DECOMPOSED, outcome, TOLERANCE)
    assert (outcome.kind, outcome.quantity) == ("differs", "gradient")
    assert names_of(small) == ["relu"]
    assert culprit is not None
    assert culprit.backend == "aot_eager_decomp_partition"


def test_a_graph_without_a_fault_passes_and_without_time_the_whole_graph_remains() -> None:
    graph = relu_between_other_operations()
    assert graphs.GraphTrials(graph, TOLERANCE).outcome(DECOMPOSED) == PASSES
    with wrong_decomposition():
        outcome = graphs.GraphTrials(graph, TOLERANCE).outcome(DECOMPOSED)
        small = graphs.minify(graph, DECOMPOSED, outcome, TOLERANCE, time.monotonic())
    assert small.num_nodes == graph.num_nodes


def test_dropout_that_double_precision_draws_otherwise_excuses_no_fault() -> None:
    linear = nn.Linear(32, 32)

    def function(x: Tensor) -> Tensor:
        return nn.functional.dropout(torch.relu(linear(x)), 0.5)

    trials = graphs.GraphTrials(captured(function, torch.randn(8, 32)), TOLERANCE)
    assert trials.outcome(WRONG_RELU).kind == "differs"


def test_a_program_fails_under_the_backend_alone_whatever_its_error_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = relu_between_other_operations()
    outcome = graphs.GraphTrials(graph, TOLERANCE).outcome(WRONG_RELU)
    said = 'C:\\Users\\u """ {x} "'
    program = make_program(graph, WRONG_RELU, outcome, TOLERANCE, said)
    assert program is not None
    assert len(program.source.splitlines()) < 80
    file = program.write(tmp_path)
    # A process of its own runs the program in an investigation: `test_investigated_faults.py`.
    monkeypatch.setattr(sys, "argv", [file.name])
    with pytest.raises(SystemExit, match="differs"):
        runpy.run_path(str(file))
    torch._dynamo.reset()
    monkeypatch.setattr(sys, "argv", [file.name, "eager"])
    runpy.run_path(str(file))


@pytest.mark.parametrize(
    "code, outcome",
    [
        ("pass", PASSES),
        (
            "import sys; sys.exit('result 2 differs by up to 0.5')",
            Outcome(kind="differs", quantity="result", tensor="2", max_error=0.5),
        ),
        ("import os; os.abort()", Outcome(kind="crashes", error="the process ended by signal 6")),
        (
            "import json; json.loads('{')",
            Outcome(
                kind="raises",
                error="JSONDecodeError: Expecting property name enclosed in double quotes: "
                "line 1 column 2 (char 1)",
            ),
        ),
        ("import time; time.sleep(9)", Outcome(kind="times out")),
    ],
)
def test_a_program_that_fails_otherwise_is_told_apart(
    code: str, outcome: Outcome, tmp_path: Path
) -> None:
    seconds = 1.0 if outcome.kind == "times out" else 60.0
    assert try_program([sys.executable, "-c", code], tmp_path, seconds) == outcome


def test_a_fault_that_random_inputs_do_not_show_takes_the_trainings_own() -> None:
    """Both inputs are equal, which random numbers are not."""

    def backend(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        def run(*arguments: Tensor) -> Any:
            outputs = module.forward(*arguments)
            wrong = torch.equal(arguments[0], arguments[1])
            return [output + 1.0 for output in outputs] if wrong else outputs

        return run

    torch._dynamo.register_backend(backend, name="wrong_for_equal_inputs")
    x = torch.randn(5, 7)
    graph = captured(lambda a, b: (a * b).sum(), x, x.clone())
    arm = parse_backend("wrong_for_equal_inputs")
    outcome = graphs.GraphTrials(graph, TOLERANCE).outcome(arm)
    program = make_program(graph, arm, outcome, TOLERANCE, "equal inputs")
    assert program is not None
    assert sorted(program.data) == [0, 1]
    assert torch.equal(program.data[0], x)


@pytest.mark.parametrize(
    "first, second, same",
    [
        (
            Outcome(kind="raises", error="E: node 12 has shape (3, 4)"),
            Outcome(kind="raises", error="E: node 7 has shape (5, 6)"),
            True,
        ),
        (
            Outcome(kind="raises", error="TypeError: no"),
            Outcome(kind="raises", error="E: no"),
            False,
        ),
        (
            Outcome(kind="raises", error="InductorError: LoweringException: KeyError: no rsqrt"),
            Outcome(
                kind="raises",
                error="BackendCompilerFailed: backend='x' raised:\nKeyError: no rsqrt",
            ),
            True,
        ),
        (
            Outcome(kind="raises", error="InductorError: KeyError: no rsqrt"),
            Outcome(kind="raises", error="InductorError: KeyError: no tanh"),
            False,
        ),
        (Outcome(kind="raises", error="E: no"), Outcome(kind="differs"), False),
        (PASSES, PASSES, False),
    ],
)
def test_failures_are_of_one_kind_if_their_messages_begin_alike(
    first: Outcome, second: Outcome, same: bool
) -> None:
    assert is_same(first, second) is same


def test_the_graph_of_an_optimizer_which_holds_its_weights_passes_again_and_again() -> None:
    weight = torch.ones(6)

    def update(x: Tensor) -> Tensor:
        with torch.no_grad():
            weight.add_(x)
        return weight * 2

    graph = captured(update, torch.ones(6))
    trials = graphs.GraphTrials(graph, TOLERANCE)
    assert [trials.outcome(DECOMPOSED) for _ in range(2)] == [PASSES, PASSES]


def test_a_mask_of_very_low_numbers_hides_no_fault_beside_it() -> None:
    mask = torch.arange(8) > 5

    def function(x: Tensor) -> Tensor:
        return torch.relu(x).masked_fill(mask, -1e9)

    outcome = graphs.GraphTrials(captured(function, torch.randn(4, 8)), TOLERANCE).outcome(
        WRONG_RELU
    )
    assert (outcome.kind, outcome.quantity) == ("differs", "output")
