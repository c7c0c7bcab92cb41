"""Causes faults on purpose and counts their damage: `benchmarks/results/faults.md`."""
