"""After training, a check tests whether a backend draws the random numbers that eager draws."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.backends.registry import list_backends, register_backend
from torch.fx import GraphModule

from breakeven.runner.specs.experiment import DataSpec, ModelSpec
from breakeven.runner.specs.scenarios.base import ScenarioName
from breakeven.runner.worker.correctness.own_random_numbers import DropoutProbes, TensorState
from breakeven.runner.worker.device.device_kinds import CpuDevice
from tests.faults.dropout_faults import OWN_NUMBERS
from tests.helpers.loop import NET, experiment, of_kind, run, torch_afresh

pytestmark = pytest.mark.heavy
CHECKED_KINDS = ("random_numbers", "redraw", "rehearsal", "dropout")
BERT: dict[str, Any] = {
    "task": "text_classification",
    "model": ModelSpec(),
    "data": DataSpec(num_train_samples=26, num_eval_samples=10, sequence_length=16),
}
"""It drops out in its attention as well."""


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    with torch_afresh():
        names = ("own_numbers", "dropout_wrong_rate", "dropout_in_inference")
        backends = {
            **{name: OWN_NUMBERS[name] for name in names},
            "warms_up": drawing_once(before=False),
            "traces_with_numbers": drawing_once(before=True),
        }
        for name, backend in backends.items():
            if name not in list_backends(exclude_tags=None):
                register_backend(backend, name=name)
        yield


def drawing_once(*, before: bool) -> Any:
    """A backend that draws a number more in its first call: before the requested ones, as a
    tracing compiler does, or after them, as a backend that captures CUDA graphs does."""

    def backend(graph: GraphModule, inputs: list[Any]) -> Any:
        calls = count()

        def run(*arguments: Any) -> Any:
            is_first = next(calls) == 0
            if is_first and before:
                torch.rand(())
            results = graph.forward(*arguments)
            if is_first and not before:
                torch.rand(())
            return results

        return run

    return backend


def events_of(
    tmp_path: Path, backend: str, label: str, dropout: Any = "keep", **workload: Any
) -> Any:
    spec = experiment(**(NET | workload), backends=(backend,))
    spec = replace(spec, model=replace(spec.model, dropout=dropout))
    events = run(spec, tmp_path / f"{label}.jsonl", label)
    return {kind: of_kind(events, kind) for kind in ("step", "phase", *CHECKED_KINDS)}


def test_a_backend_that_draws_what_eager_draws_is_checked_no_further(tmp_path: Path) -> None:
    events = events_of(tmp_path, "eager:scope=forward", "eager-forward")
    (check,) = events["random_numbers"]
    assert check["same"] and check["num_draws"] == 2
    assert "checking" in [event["phase"] for event in events["phase"]]
    assert check["same_seed"] < 1e-6 * check["other_seeds"]
    assert not events["rehearsal"] and not events["dropout"] and not events["redraw"]


def test_numbers_that_a_backend_draws_once_too_many_are_not_missing_in_later_steps(
    tmp_path: Path,
) -> None:
    baseline = events_of(tmp_path, "warms_up:scope=forward", "baseline")
    compiled = events_of(tmp_path, "warms_up:scope=forward", "warms_up-forward")
    losses, expected = (
        [event["loss"] for event in events["step"]] for events in (compiled, baseline)
    )
    assert losses == pytest.approx(expected, rel=1e-5)
    assert compiled["random_numbers"][0]["same"]


def test_a_backend_whose_first_call_alone_draws_others_rehearses_without_dropout(
    tmp_path: Path,
) -> None:
    events = events_of(tmp_path, "traces_with_numbers:scope=forward", "traces_with_numbers-forward")
    (check,) = events["random_numbers"]
    assert not check["same"] and check["num_draws"] == 12
    losses = {event["form"]: event["loss_by_step"] for event in events["rehearsal"]}
    assert losses["compiled"] == pytest.approx(losses["eager"], rel=1e-5)


@pytest.mark.parametrize(("label", "dropout"), [("baseline", "keep"), ("eager-forward", "off")])
def test_where_nothing_is_compiled_or_nothing_drawn_nothing_is_checked(
    tmp_path: Path, label: str, dropout: str
) -> None:
    events = events_of(tmp_path, "eager:scope=forward", label, dropout)
    assert not any(events[kind] for kind in CHECKED_KINDS)


@pytest.mark.slow
def test_a_backend_that_draws_others_rehearses_without_dropout(tmp_path: Path) -> None:
    training = replace(experiment().training, epochs=1)
    events = events_of(
        tmp_path, "own_numbers:scope=forward", "own_numbers-forward", training=training, **BERT
    )
    (check,) = events["random_numbers"]
    assert not check["same"] and check["num_draws"] == 12 and check["inference_draws"] is False
    assert len(events["redraw"][0]["distances"]) == 24 * 23 / 2
    losses = {event["form"]: event["loss_by_step"] for event in events["rehearsal"]}
    assert losses["compiled"] == pytest.approx(losses["eager"], rel=1e-5)
    assert losses["perturbed"] != losses["eager"]
    assert len(losses["eager"]) == len(events["step"]) == 6
    # Embeddings, in the layer attention and two outputs; the pooled output.
    for compiled in (False, True):
        rows = [row for row in events["dropout"] if row["compiled"] is compiled]
        assert [row["number"] for row in rows] == list(range(5))
        assert [row["operation"] == "attention" for row in rows].count(True) == 1
        assert all(abs(row["zeros"] / row["tried"] - 0.1) < 0.03 for row in rows)
        assert all(row["backward"] == pytest.approx(row["squares"]) for row in rows)


def test_a_wrong_rate_shows_in_every_dropout(tmp_path: Path) -> None:
    events = events_of(tmp_path, "dropout_wrong_rate:scope=forward", "dropout_wrong_rate-forward")
    rows = [row for row in events["dropout"] if row["compiled"]]
    assert len(rows) == 2
    assert all(abs(row["zeros"] / row["tried"] - 0.2) < 0.04 for row in rows)


def test_dropout_that_is_left_on_in_inference_shows_as_other_answers(tmp_path: Path) -> None:
    backend = "dropout_in_inference"
    events = events_of(tmp_path, f"{backend}:scope=forward", f"{backend}-forward")
    assert events["random_numbers"][0]["inference_draws"] is True


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.25)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(x, x, x, dropout_p=0.5, is_causal=True)
        return self.dropout(attended)


def test_probes_let_everything_through_and_draw_beside_it() -> None:
    net, x = Net(), torch.randn(4, 2, 8, 16)
    plain = F.scaled_dot_product_attention(x, x, x, is_causal=True)
    probes = DropoutProbes(torch.device("cpu"))
    with probes.active():
        assert probes.survey(lambda: torch.equal(net(x), plain))
        assert [(place.operation, place.p) for place in probes.places] == [
            ("attention", 0.5),
            ("dropout", 0.25),
        ]
        assert torch.equal(net(x), plain)
        (4 * probes.term()).backward()
    tried, zeros, total, squares, backward = probes.take(loss_scale=4.0).T
    # One number for each query; each element of the output.
    assert tried.tolist() == [4 * 2 * 8, 4 * 2 * 8 * 16]
    kept = tried - zeros
    assert torch.allclose(total, kept * torch.tensor([2.0, 4 / 3]).double())
    assert torch.allclose(squares, kept * torch.tensor([4.0, 16 / 9]).double())
    assert torch.allclose(backward, squares)
    assert not torch.equal(net(x), plain), "dropout is itself again"


@dataclass
class WithRoom(CpuDevice):
    free: int

    @property
    def free_bytes(self) -> int:
        return self.free


def test_a_copy_of_the_state_lies_on_the_device_where_twice_its_size_is_free() -> None:
    # Six numbers of 4 bytes, of a device that has none to give: they cannot be copied to the CPU.
    model = nn.Linear(2, 2, device="meta")
    assert {value.device.type for value in TensorState(model, [], WithRoom(48))._values} == {"meta"}
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta"):
        TensorState(model, [], WithRoom(47))


def test_the_state_of_model_and_optimizer_is_put_back_in_place() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> torch.Tensor:
        loss = model(torch.ones(3, 2) * torch.tensor([[1.0], [2.0], [4.0]])).square().sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    step()
    state = TensorState(model, [optimizer], CpuDevice(torch.device("cpu")))
    places = [parameter.data_ptr() for parameter in model.parameters()]
    first = step()
    state.restore()
    assert torch.equal(step(), first)
    assert [parameter.data_ptr() for parameter in model.parameters()] == places


@pytest.mark.parametrize("scenario", ["accuracy", "cache"])
def test_where_no_parity_is_judged_random_numbers_are_not_checked(
    tmp_path: Path, scenario: ScenarioName
) -> None:
    """A scenario of whose runs each has something else to do, and one that trains as usual."""
    spec = experiment(**NET, backends=("own_numbers:scope=forward",), scenario=scenario)
    label = next(arm.label for arm in spec.arms if arm.backend and arm.cache != "warm")
    events = run(spec, tmp_path / "journal", label)
    phases = [event["phase"] for event in of_kind(events, "phase")]
    assert phases[-1] == "done" and "checking" not in phases
    assert not any(of_kind(events, kind) for kind in CHECKED_KINDS)
