"""What is kept of tensors that a script hands to what it compiled."""

import pytest
import torch

from breakeven.runner.worker.script.workload import inputs_of

PICTURES = torch.rand(8, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def test_floats_stand_apart_from_what_no_model_computes() -> None:
    tokens = torch.arange(6)
    one, other = inputs_of(((tokens, PICTURES), {})), inputs_of(((tokens, 2 * PICTURES), {}))
    assert one is not None and other is not None
    assert one.sha256 == other.sha256
    assert one.floats != other.floats
    assert one.whole_sha256 != other.whole_sha256


@pytest.mark.parametrize(("change", "is_close"), [
    (lambda x: x * (1 + 1e-6), True),
    (lambda x: x.bfloat16().float(), True),
    (lambda x: x.flip(-1), False),
    (lambda x: x.roll(1, 0), False),
    (lambda x: x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1)), False),
])  # fmt: skip
def test_rough_numbers_tell_rounding_from_another_picture(change: object, is_close: bool) -> None:
    rough = []
    for pictures in (PICTURES - 0.5, change(PICTURES - 0.5)):  # type: ignore[operator]
        found = inputs_of(pictures)
        assert found is not None
        rough.append(found.floats[0]["rough"])
    apart = max(abs(a - b) / rough[0][0] for a, b in zip(*rough, strict=True))
    assert (apart < 0.01) is is_close
