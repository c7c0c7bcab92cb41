"""What is compiled: the iteration, the forward, forward and backward, or the repeated blocks."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch._dynamo.backends.registry import register_backend
from torch._dynamo.utils import counters
from torch.fx import GraphModule

from breakeven.runner.checks.allowed_code import CODE_VARIABLE
from breakeven.runner.errors import WorkloadError
from breakeven.runner.specs.backends import parse_backend
from breakeven.runner.specs.experiment import (
    EvaluationSpec,
    ExperimentSpec,
    ModelSpec,
    TrainingSpec,
)
from breakeven.runner.worker.compiler import compile_with_backend
from breakeven.storage.words.recipe import recipe
from tests.faults.trial import FOLDER as FAULTS
from tests.faults.trial import WORKLOADS
from tests.helpers.loop import experiment, of_kind, run, torch_afresh

pytestmark = pytest.mark.usefixtures("fresh_torch")


Recorded = dict[str, list[dict[str, Any]]]
"""Events by scope."""
SCOPES = ("iteration", "forward", "forward_backward", "blocks")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The events of a training under each scope, and of one without a compiler."""
    folder = tmp_path_factory.mktemp("scopes")
    net = replace(WORKLOADS["relu net"], evaluation=EvaluationSpec())
    net = replace(net, training=replace(net.training, max_steps=8, optimizer="SGD"), block_steps=4)
    by_scope = {}
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv(CODE_VARIABLE, str(FAULTS))
        by_scope["none"] = run(net, folder / "none")
        for scope in SCOPES:
            backend = f"eager:scope={scope}"
            spec = replace(net, backends=(backend,))
            with torch_afresh():
                by_scope[scope] = run(spec, folder / scope, parse_backend(backend).label)
    return by_scope


def functions(events: list[dict[str, Any]]) -> set[str]:
    return {str(event["function"]) for event in of_kind(events, "compile_metrics")}


def losses(events: list[dict[str, Any]]) -> list[float]:
    return [step["loss"] for step in of_kind(events, "step")]


def test_every_scope_trains_the_same(recorded: Recorded) -> None:
    for scope in SCOPES:
        assert losses(recorded[scope]) == pytest.approx(losses(recorded["none"]), abs=1e-4), scope


def test_only_what_the_scope_names_is_compiled(recorded: Recorded) -> None:
    names = functions(recorded["forward"])
    assert names and not names & {"iterate", "backward", "update", "step"}
    names = functions(recorded["forward_backward"])
    assert {"backward", "update"} <= names and "iterate" not in names


def test_equal_blocks_are_compiled_once_for_all(tmp_path: Path) -> None:
    # It has two layers; inference is code of its own.
    spec = experiment(
        backends=("eager:scope=blocks",),
        task="causal_lm",
        model=ModelSpec(source="builtin:gpt2-tiny"),
        training=TrainingSpec(batch_size=4, max_steps=2),
    )
    events = run(spec, tmp_path / "events.jsonl", "eager-blocks")
    compiled = of_kind(events, "compile_metrics")
    assert [event["phase"] for event in compiled] == ["training", "evaluating"]
    assert [event["blocks"] for event in of_kind(events, "workload")] == [["transformer.h.*"]]


@pytest.mark.parametrize(
    "block",
    [
        lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True),
        lambda: nn.Sequential(nn.Linear(8, 8), nn.ReLU()),
        lambda: nn.Linear(8, 8),
    ],
)
def test_blocks_of_torchs_own_classes_are_compiled_too_and_once_for_all(block: Any) -> None:
    """Dynamo passes over a forward that lies in torch itself, without a word."""
    model = nn.Module()
    model.blocks = nn.ModuleList([block() for _ in range(4)])
    counters.clear()
    compile_with_backend.compile_blocks(model, parse_backend("eager:scope=blocks"))
    points = torch.randn(2, 3, 8, requires_grad=True)
    for compiled_block in model.blocks:
        points = compiled_block(points)
    points.sum().backward()
    assert counters["frames"] == {"total": 1, "ok": 1} and counters["stats"]["unique_graphs"] == 1


class Block(nn.Module):
    def __init__(self, width: int, parts: Sequence[nn.Module] = ()) -> None:
        super().__init__()
        self.layer, self.parts = nn.Linear(width, width), nn.ModuleList(parts)


class Stage(Block):
    pass


TWO, THREE = (Block(2), Block(2)), (Block(3), Block(3))
EXPERTS = [Block(2, [Stage(1), Stage(1)]) for _ in range(2)]
STAGES = [Stage(2, TWO), Stage(3, THREE)]
PYRAMID = [Block(width) for width in (2, 3, 4)]
SHARED = nn.ModuleList(TWO)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (nn.Sequential(nn.Linear(2, 2), *TWO, nn.Conv2d(2, 3, 1), *THREE), [*TWO, *THREE]),
        (nn.Sequential(nn.Sequential(*TWO), nn.Sequential(*THREE)), [*TWO, *THREE]),
        (nn.ModuleList(STAGES), [*TWO, *THREE]),
        (nn.Sequential(*EXPERTS), EXPERTS),
        (nn.ModuleList(PYRAMID), PYRAMID),
        (nn.ModuleDict({"a": nn.ModuleDict({"b": SHARED}), "c": SHARED}), [*TWO]),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), []),
        (nn.ModuleList([nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)]), []),
        (nn.Sequential(Block(2), Stage(2)), []),
    ],
    ids=[
        "among layers",
        "in sequences",
        "in stages",
        "of experts",
        "of growing width",
        "in a shared list",
        "none: layers",
        "none: in a list",
        "none: two classes",
    ],
)
def test_blocks_are_equal_modules_of_lists_and_sequences(
    model: nn.Module, expected: list[nn.Module]
) -> None:
    assert compile_with_backend.repeated_blocks(model) == expected


@pytest.mark.parametrize(
    ("model", "paths"),
    [
        (nn.Sequential(nn.Linear(2, 2), *TWO), ["1", "2"]),
        (nn.ModuleList(PYRAMID), ["*"]),
        (
            nn.ModuleDict({"a": nn.ModuleDict({"b": SHARED}), "c": nn.Sequential(*THREE)}),
            ["a.b.*", "c.*"],
        ),
    ],
    ids=["among layers", "the model itself", "in two lists"],
)
def test_the_recipe_finds_the_blocks_by_their_paths(model: nn.Module, paths: list[str]) -> None:
    assert compile_with_backend.block_paths(model) == paths
    lines = recipe(ExperimentSpec(name="x"), parse_backend("eager:scope=blocks"), blocks=paths)
    copied = deepcopy(model)
    exec(lines, {"model": copied})
    compiled = [module for module in copied.modules() if module._compiled_call_impl is not None]
    assert compiled == compile_with_backend.repeated_blocks(copied)


def test_a_model_without_repeated_blocks_is_refused() -> None:
    with pytest.raises(WorkloadError, match="Linear has no repeated blocks"):
        compile_with_backend.compile_blocks(nn.Linear(2, 2), parse_backend("eager:scope=blocks"))


def test_settings_reach_torch_compile() -> None:
    arm = parse_backend("inductor:epilogue_fusion=false+dynamic=true")
    assert compile_with_backend.compile_arguments(arm) == {
        "backend": "inductor",
        "mode": None,
        "fullgraph": False,
        "dynamic": True,
        "options": {"epilogue_fusion": False},
    }


def test_inductor_takes_a_mode_and_what_stands_beside_it() -> None:
    settings = "mode=max-autotune+triton.cudagraphs=false+triton.unique_kernel_names=false"
    compiled: Any = compile_with_backend.make_compiler(
        parse_backend(f"inductor:scope=forward+{settings}")
    )(torch.sin)
    used = compiled.get_compiler_config()
    # The mode asks for the first two and for graphs, which the setting beside it takes back.
    assert used["max_autotune"] and used["coordinate_descent_tuning"]
    assert not used["triton.cudagraphs"] and not used["triton.unique_kernel_names"]


def without_gradients(graph: GraphModule, _inputs: list[Any]) -> Any:
    return torch.no_grad()(graph.forward)


def in_inference_mode(graph: GraphModule, _inputs: list[Any]) -> Any:
    return torch.inference_mode()(graph.forward)


def train(backend: str, *, detached: bool = False) -> None:
    """Forward under the backend, then a loss of it and backward without one."""
    arm = parse_backend(backend)
    weight = torch.ones(3, requires_grad=True)
    with compile_with_backend.explained(arm):
        answer = compile_with_backend.make_compiler(arm)(lambda factor: factor * 2)(weight)
        ((answer.detach() if detached else answer) ** 2).sum().backward()


@pytest.mark.parametrize("compiles", [without_gradients, in_inference_mode])
def test_a_backend_whose_outputs_carry_no_gradients_is_said_to_be_for_inference(
    compiles: Any,
) -> None:
    backend = f"{compiles.__name__}_here"  # other tests of this process register its plain name
    register_backend(compiles, name=backend)
    with pytest.raises(WorkloadError, match=f"'{backend}' is for inference alone.*no gradients"):
        train(backend)


def test_a_loss_that_the_script_itself_detaches_is_not_blamed_on_the_backend() -> None:
    train("aot_eager")
    with pytest.raises(RuntimeError, match="does not require grad"):
        train("aot_eager", detached=True)


def test_a_backend_that_torch_does_not_know_is_refused_with_those_that_train() -> None:
    with pytest.raises(
        WorkloadError, match=r"'indcutor' is not registered.*mean 'inductor'"
    ) as caught:
        compile_with_backend.make_compiler(parse_backend("indcutor"))
    assert "aot_eager" in str(caught.value) and "TESTING" not in str(caught.value)
