"""Candidates of a search."""

from dataclasses import replace

import pytest

from benchmarks.search_trials import search
from breakeven.runner.specs.candidates import candidates

pytestmark = pytest.mark.heavy  # The module of trials imports torch.


@pytest.mark.parametrize(
    ("precision", "allow", "device", "tries"),
    [
        ("float32", ("precision",), "cuda:0", True),
        ("bf16", ("precision",), "cuda:0", False),
        ("float32", (), "cuda:0", False),
        ("float32", ("precision",), "cpu", False),
    ],
)
def test_tf32_is_tried_in_place_of_float32_on_cuda_if_the_precision_may_change(
    precision: str, allow: tuple[str, ...], device: str, tries: bool
) -> None:
    usual = search()
    spec = replace(
        usual,
        devices=(device,),
        training=replace(usual.training, precision=precision),
        tune=replace(usual.tune, allow=allow),
    )
    assert any("tf32" in text for text in candidates(spec)) == tries
