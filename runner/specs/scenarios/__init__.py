"""The scenarios: what the runs of an experiment do, and how they are compared; one module each."""
