"""What a team's store takes, beside the embedded one on the same work."""

NUM_STEPS = 10_000
"""Of each run."""
