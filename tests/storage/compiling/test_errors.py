"""Errors of tensors are placed by layer, and the first in the order of computing is named."""

import pytest

from breakeven.runner.protocol.data_dir import DataDir
from breakeven.storage import queries
from breakeven.storage.comparison.correctness import checks, growths, with_places_of_layers
from breakeven.storage.index.store import Store
from breakeven.views.charts.tensor_errors import CEILING, FLOOR, errors
from tests.helpers.correctness_journals import SPEC, record, tensor
from tests.helpers.journals import EXPERIMENT_ID

LAYERS = ("first.weight", "blocks.0.weight", "blocks.1.weight", "head.weight")


def outcome(gradients: dict[str, float | None], logits: float = 0.001):
    """Each gradient's root mean square error; 0.005 is what is allowed. None: not comparable."""
    tensors = [tensor("logits", quantity="output", rmse=logits, scale=2.0, passed=logits <= 0.005)]
    for name in LAYERS:
        rmse = gradients.get(name, 0.0005)
        known = {} if rmse is not None else {"max_difference": None}
        tensors.append(tensor(name, rmse=rmse, passed=rmse is not None and rmse <= 0.005, **known))
    return {"training": ("fail_accuracy", tensors)}


@pytest.mark.parametrize(
    ("gradients", "tensor", "ratio"),
    [
        # The backward pass comes to blocks.1 before it comes to the first layer: 0.01 / 0.005 = 2.
        ({"first.weight": 0.05, "blocks.1.weight": 0.01}, "blocks.1.weight", 2),
        ({"blocks.0.weight": 0.004}, "blocks.0.weight", 0.8),  # nothing fails
        ({"head.weight": None}, "head.weight", float("inf")),
    ],
)
def test_the_gradient_that_is_computed_first_is_named(
    data_dir: DataDir, gradients: dict[str, float | None], tensor: str, ratio: float
):
    record(data_dir, "baseline", outcome({}))
    record(data_dir, "inductor", outcome(gradients))
    with Store.in_memory(data_dir) as store:
        (growth,) = growths(with_places_of_layers(queries.accuracy_tensors(store, EXPERIMENT_ID)))
    assert (growth.quantity, growth.tensor, growth.is_beyond) == ("gradient", tensor, ratio > 1)
    assert growth.ratio == pytest.approx(ratio)


def test_the_picture_has_the_layers_in_their_order_and_the_limit_at_one(data_dir: DataDir):
    record(data_dir, "eager", outcome({"blocks.0.weight": 0.0, "head.weight": None}))
    with Store.in_memory(data_dir) as store:
        data = with_places_of_layers(queries.accuracy_tensors(store, EXPERIMENT_ID))
    figure = errors(data, "training", "backward")
    (trace,) = figure.data
    assert list(trace.x) == [0, 1, 2, 3]
    assert list(trace.y) == pytest.approx([0.1, FLOOR, 0.1, CEILING])
    assert list(figure.layout.xaxis.ticktext) == ["first", "blocks.0", "blocks.1", "head"]
    assert figure.layout.yaxis.type == "log"
    assert [shape.y0 for shape in figure.layout.shapes] == [1]
    assert len(errors(data, "training", "forward").data) == 1


def test_nothing_that_was_compared_makes_an_empty_picture_and_no_sentence(data_dir: DataDir):
    record(data_dir, "inductor", {"training": ("fail_to_run", [])})
    with Store.in_memory(data_dir) as store:
        data = with_places_of_layers(queries.accuracy_tensors(store, EXPERIMENT_ID))
    assert data.empty and not list(growths(data))


def test_the_layer_whose_output_is_wrong_first_is_named(data_dir: DataDir):
    """Outputs and loss fail as well, and come later; 0.02 / 0.005 = 4."""

    def layer(name: str, rmse: float):
        return tensor(name, quantity="activation", rmse=rmse, passed=rmse <= 0.005)

    (training_outcome,) = outcome({"head_weight": 0.05}, logits=0.1).values()
    layers = [layer("blocks.0", 0.001), layer("blocks.1.act", 0.02), layer("blocks.1", 0.04)]
    record(data_dir, "inductor", {"training": ("fail_accuracy", [*training_outcome[1], *layers])})
    with Store.in_memory(data_dir) as store:
        tensors = queries.accuracy_tensors(store, EXPERIMENT_ID)
        (check,) = (
            candidate
            for candidate in checks(store, EXPERIMENT_ID, SPEC)
            if candidate.label == "inductor" and candidate.part == "training"
        )
    data = with_places_of_layers(tensors)
    (growth,) = growths(data)
    assert (growth.quantity, growth.tensor, growth.is_beyond) == (
        "activation",
        "blocks.1.act",
        True,
    )
    assert growth.ratio == pytest.approx(4)
    assert (check.num_tensors, check.num_failed) == (5, 1), "no count hangs on layers"
    (trace,) = errors(data, "training", "forward").data
    assert list(trace.y) == pytest.approx([0.2, 4, 8, 20]) and trace.mode == "lines+markers"
