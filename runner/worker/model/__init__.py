"""Models, including those of benchmark suites, with their losses and metrics."""
