"""The effect of each compiler stage on a run, and compiler differences between two runs."""
