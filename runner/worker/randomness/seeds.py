"""What the generators of random numbers are seeded with."""

SEEDS_APART = 7_654_321
"""Between two trainings, so that steps of one draw other numbers than steps of the other."""


def step_seed(seed: int, step: int) -> int:
    """For the numbers that a step draws, counted from 0, of a training with that seed.

    Every step has a seed of its own, so that a backend which draws too many numbers once, as one
    does that warms up before it captures a CUDA graph, draws the baseline's again a step later.
    """
    return (seed + 1) * SEEDS_APART + step
