"""Intervals, tests and verdicts: pure functions on numbers."""
