"""A change of settings can save no more than the parts of a training that it shortens."""

import pytest

from breakeven.runner.specs.candidates import Shares, potential
from breakeven.runner.specs.variants import Variant, parse_backends

BASELINE = Variant(label="baseline", role="baseline")
# A step waits for the host for two thirds of its time, as BERT-base with small batches does.
WAITING = Shares(working=0.33, waiting=0.67, compiling=0.1, loading=0.05)


def of(name: str) -> Variant:
    return parse_backends((name,))[0]


@pytest.mark.parametrize(
    ("name", "origin", "share"),
    [
        ("inductor", "", 1.0),
        ("inductor:mode=reduce-overhead", "", 1.0),
        ("cudagraphs", "", 0.67),
        ("none:optimizer=fused", "", 1.0),
        ("none:tf32=true", "", 0.33),
        ("inductor:cpp_wrapper=true", "inductor", 0.67),
        ("inductor:coordinate_descent_tuning=true", "inductor", 0.33),
        ("inductor:mode=max-autotune-no-cudagraphs", "inductor", 0.33),
        ("inductor:mode=max-autotune", "inductor", 1.0),
        ("inductor:scope=forward", "inductor", 1.0),
        # A compiler, or CUDA graphs, may have made any part slower.
        ("none:optimizer=fused", "inductor:optimizer=fused", 1.0),
        ("cudagraphs", "inductor", 1.0),
        ("inductor", "inductor:mode=reduce-overhead", 1.0),
        # Steps that are replayed from graphs do not wait.
        ("inductor:mode=max-autotune", "inductor:mode=reduce-overhead", 1.0),
        ("inductor:mode=reduce-overhead+cpp_wrapper=true", "inductor:mode=reduce-overhead", 0.0),
        ("aot_eager", "", 1.0),
        ("none:loader_workers=4", "", 0.05),
        ("inductor:mode=reduce-overhead+loader_workers=4", "inductor:mode=reduce-overhead", 0.05),
    ],
)
def test_a_candidates_potential_is_the_share_of_what_it_shortens(
    name: str, origin: str, share: float
) -> None:
    found = potential(of(name), of(origin) if origin else BASELINE, WAITING)
    assert found == pytest.approx(share)


def test_a_part_of_unknown_length_counts_as_the_whole_training() -> None:
    assert potential(of("cudagraphs"), BASELINE, Shares()) == 1
