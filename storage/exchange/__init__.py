"""Exports and imports: tables, run folders, reports, and results in the formats of PyTorch's own
benchmarks (docs/suites.md)."""
