"""How the shapes of a script's inputs and their padding are counted."""

import torch
from torch import nn

from breakeven.runner.worker.script.input_shapes import InputShapes


def tokens(batch: int, length: int) -> torch.Tensor:
    return torch.ones(batch, length, dtype=torch.long)


def test_each_different_shape_counts_once_with_the_dimension_that_varies() -> None:
    shapes, model = InputShapes(), nn.Embedding(2, 2)
    for length in (5, 7, 5, 9):
        ids = tokens(8, length)
        shapes.add(model, (), {"input_ids": ids, "labels": ids, "scale": 2.0})
    assert shapes.summary() == {
        "distinct": 3,
        "calls": 4,
        "most_common": 2,
        "last_new": 4,
        # `labels` always has the size of `input_ids`, which is named for both.
        "varying": [{"input": "input_ids", "dimension": 1, "sizes": 3, "least": 5, "most": 9}],
    }


def test_a_last_small_batch_is_a_second_shape_among_many_of_the_first() -> None:
    shapes, model = InputShapes(), nn.Linear(2, 2)
    for size in (4, 4, 4, 1):
        shapes.add(model, (torch.ones(size, 2),), {})
    summary = shapes.summary()
    assert summary is not None
    assert (summary["distinct"], summary["most_common"], summary["last_new"]) == (2, 3, 4)
    assert summary["varying"] == [
        {"input": "argument 1", "dimension": 0, "sizes": 2, "least": 1, "most": 4}
    ]


def test_tensors_within_lists_and_dictionaries_count_as_those_of_their_argument() -> None:
    shapes = InputShapes()
    for edges in (10, 11):
        graph = {"nodes": torch.ones(3, 2), "edges": torch.ones(2, edges)}
        shapes.add(None, (graph, [torch.ones(1)]), {})
    summary = shapes.summary()
    assert summary is not None
    assert summary["varying"] == [
        {"input": "argument 1", "dimension": 1, "sizes": 2, "least": 10, "most": 11}
    ]


def test_of_several_models_the_one_with_the_most_shapes_is_recorded() -> None:
    shapes, steady, restless = InputShapes(), nn.Linear(2, 2), nn.Linear(2, 2)
    for size in (1, 2, 3):
        shapes.add(steady, (torch.ones(9, 2),), {})
        shapes.add(restless, (torch.ones(size, 2),), {})
    summary = shapes.summary()
    assert summary is not None and (summary["distinct"], summary["calls"]) == (3, 3)


def test_without_a_call_nothing_is_recorded() -> None:
    assert InputShapes().summary() is None and InputShapes().padding_share is None


def test_padding_is_what_the_attention_mask_leaves_out() -> None:
    shapes = InputShapes()
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0]])
    shapes.count_padding(None, (tokens(2, 4),), {"attention_mask": mask})
    shapes.count_padding(None, (tokens(2, 4),), {"attention_mask": torch.ones(2, 4)})
    assert shapes.padding_share == 4 / 16


def test_without_a_mask_padding_is_what_an_embedding_of_the_model_takes_for_it() -> None:
    shapes = InputShapes()
    model = nn.Sequential(nn.Embedding(10, 2, padding_idx=7))
    shapes.count_padding(model, (torch.tensor([[1, 7, 7], [2, 3, 7]]),), {})
    assert shapes.padding_share == 0.5


def test_the_share_of_padding_is_unknown_if_nothing_says_what_padding_is() -> None:
    shapes = InputShapes()
    shapes.count_padding(nn.Embedding(10, 2), (torch.zeros(2, 3, dtype=torch.long),), {})
    shapes.count_padding(nn.Embedding(10, 2, padding_idx=0), (torch.zeros(2, 3),), {})
    assert shapes.padding_share is None
