"""The tabs of an experiment and of one run."""
