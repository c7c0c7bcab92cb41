"""The ladder: backends that switch on the compiler's stages one by one.

The first rung that fails, computes wrong numbers or loses time names the responsible stage.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from breakeven.runner.errors import InvalidSpec
from breakeven.runner.specs.arm_fields import Arm
from breakeven.runner.specs.backends import parse_backend


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A backend of the ladder."""

    stage: str
    """The stage that it adds to the rung below, in a word or two."""
    text: str
    """The same in a sentence."""
    backends: tuple[str, ...]
    """Backends that count as this rung, the default first."""
    captures_cuda_graphs: bool = False
    """Whether the rung needs CUDA."""


RUNGS = (
    Rung(
        stage="Dynamo",
        text="Dynamo captures graphs of the Python code and runs them as they are.",
        backends=("eager",),
    ),
    Rung(
        stage="AOTAutograd",
        text="AOTAutograd traces the backward pass ahead of time and replaces in-place operations "
        "by functional ones.",
        backends=("aot_eager",),
    ),
    Rung(
        stage="decompositions",
        text="Operators are replaced by simpler ones, and a partitioner decides which values are "
        "stored for the backward pass and which are computed again.",
        backends=("aot_eager_decomp_partition",),
    ),
    Rung(
        stage="Inductor",
        text="Inductor lowers and fuses the operators and generates code for them.",
        backends=("inductor", "inductor:mode=default"),
    ),
    Rung(
        stage="CUDA graphs",
        text="The kernels of a step are replayed from a recording instead of being launched one by "
        "one.",
        backends=("inductor:mode=reduce-overhead", "inductor:triton.cudagraphs=true"),
        captures_cuda_graphs=True,
    ),
    Rung(
        stage="autotuning",
        text="Several kernels are timed for each matrix product and convolution, and the fastest "
        "is used.",
        backends=("inductor:mode=max-autotune", "inductor:mode=max-autotune-no-cudagraphs"),
    ),
)
"""From the lowest to the highest."""


def ladder_on(device: str) -> tuple[str, ...]:
    """The backends of the whole ladder on a device; without CUDA there are no CUDA graphs."""
    on_cuda = device.startswith("cuda")
    return tuple(
        rung.backends[0 if on_cuda else -1] if rung.stage == "autotuning" else rung.backends[0]
        for rung in RUNGS
        if on_cuda or not rung.captures_cuda_graphs
    )


def with_ladder(backends: Sequence[str], device: str) -> tuple[str, ...]:
    """The whole ladder of a device, then those of the given backends that are not part of it."""
    ladder = ladder_on(device)
    return (*ladder, *(text for text in backends if _rung_named(text) is None))


def find_rung(arm: Arm) -> Rung | None:
    """The rung of a run; None for baseline, controls and other settings."""
    if arm.backend is None:
        return None
    settings = arm.settings
    return next(
        (
            rung
            for rung in RUNGS
            if any(parse_backend(text).settings == settings for text in rung.backends)
        ),
        None,
    )


def _rung_named(text: str) -> Rung | None:
    try:
        return find_rung(parse_backend(text))
    except InvalidSpec:
        return None
