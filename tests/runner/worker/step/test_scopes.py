"""What is compiled: the iteration, the forward, forward and backward, or the repeated blocks."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from runner.errors import WorkloadError
from runner.specs.variants import parse_backend
from runner.worker.compiler.compiling import compile_arguments, compile_blocks, make_compiler
from tests.helpers.loop import experiment, of_kind, run

pytestmark = pytest.mark.usefixtures("fresh_torch")


def run_scope(scope: str, journal: Path) -> list[dict[str, Any]]:
    backend = f"eager:scope={scope}"
    return run(experiment(backends=(backend,)), journal, parse_backend(backend).label)


def functions(events: list[dict[str, Any]]) -> set[str]:
    return {str(event["function"]) for event in of_kind(events, "compile_metrics")}


def test_every_scope_trains_the_same(tmp_path: Path) -> None:
    baseline = [step["loss"] for step in of_kind(run(experiment(), tmp_path / "baseline"), "step")]
    for scope in ("iteration", "forward", "forward_backward", "blocks"):
        torch._dynamo.reset()
        losses = [step["loss"] for step in of_kind(run_scope(scope, tmp_path / scope), "step")]
        assert losses == pytest.approx(baseline, abs=1e-4), scope


def test_the_forward_alone_is_compiled_without_the_optimizer(tmp_path: Path) -> None:
    found = functions(run_scope("forward", tmp_path / "e.jsonl"))
    assert found and not found & {"iterate", "backward", "update", "step"}


def test_forward_and_backward_are_compiled_apart_from_the_optimizer(tmp_path: Path) -> None:
    found = functions(run_scope("forward_backward", tmp_path / "e.jsonl"))
    assert {"backward", "update"} <= found and "iterate" not in found


def test_equal_blocks_are_compiled_once_for_all(tmp_path: Path) -> None:
    events = run_scope("blocks", tmp_path / "e.jsonl")
    # The tiny BERT has two layers of one class; inference, without dropout, is code of its own.
    assert [e["phase"] for e in of_kind(events, "compile_metrics")] == ["training", "evaluating"]


def test_a_model_without_repeated_blocks_is_refused() -> None:
    with pytest.raises(WorkloadError, match="Linear has no repeated blocks"):
        compile_blocks(nn.Linear(2, 2), parse_backend("eager:scope=blocks"))


def test_settings_reach_torch_compile() -> None:
    variant = parse_backend("inductor:epilogue_fusion=false+dynamic=true")
    assert compile_arguments(variant) == {
        "backend": "inductor",
        "mode": None,
        "fullgraph": False,
        "dynamic": True,
        "options": {"epilogue_fusion": False},
    }


def test_inductor_compiles_with_a_mode_and_what_stands_beside_it() -> None:
    settings = "mode=max-autotune+triton.cudagraphs=false+triton.unique_kernel_names=false"
    compiled: Any = make_compiler(parse_backend(f"inductor:scope=forward+{settings}"))(torch.sin)
    values = torch.linspace(0, 1, 7)
    assert torch.allclose(compiled(values), torch.sin(values))
    used = compiled.get_compiler_config()
    # The mode asks for the first two and for graphs, which the setting beside it takes back.
    assert used["max_autotune"] and used["coordinate_descent_tuning"]
    assert not used["triton.cudagraphs"] and not used["triton.unique_kernel_names"]


def test_a_backend_that_torch_does_not_know_is_refused_with_a_hint() -> None:
    with pytest.raises(WorkloadError, match=r"'indcutor' is not registered.*mean 'inductor'"):
        make_compiler(parse_backend("indcutor"))
