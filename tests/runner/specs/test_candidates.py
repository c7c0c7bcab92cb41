"""Candidates of a search."""

from dataclasses import replace

import pytest

from benchmarks.search_trials import search
from breakeven.runner.specs.candidates import candidates

pytestmark = pytest.mark.heavy  # The module of trials imports torch.


@pytest.mark.parametrize(
    ("precision", "allow", "device", "tried"),
    [
        ("float32", ("precision",), "cuda:0", {"tf32"}),
        ("bf16", ("precision",), "cuda:0", {"math_attention"}),
        ("fp16", ("precision",), "cuda:0", {"math_attention"}),
        ("tf32", ("precision",), "cuda:0", set()),
        ("float32", (), "cuda:0", set()),
        ("bf16", (), "cuda:0", set()),
        ("float32", ("precision",), "cpu", set()),
        ("bf16", ("precision",), "cpu", set()),
    ],
)
def test_coarser_rounding_is_tried_on_cuda_if_the_precision_may_change(
    precision: str, allow: tuple[str, ...], device: str, tried: set[str]
) -> None:
    usual = search()
    spec = replace(
        usual,
        devices=(device,),
        training=replace(usual.training, precision=precision),
        tune=replace(usual.tune, allow=allow),
    )
    found = {name for name in ("tf32", "math_attention")
             if any(f"{name}=" in text for text in candidates(spec))}  # fmt: skip
    assert found == tried
