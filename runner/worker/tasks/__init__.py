"""Tasks: each module has a function `load`, which makes a workload from a specification."""
