"""Where a step's time goes: a few steps under torch's profiler, and what its trace says."""
