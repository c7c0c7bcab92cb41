"""Causes faults on purpose and counts their damage: `benchmarks/README.md`."""
