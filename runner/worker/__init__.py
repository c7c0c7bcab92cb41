"""A run: `python -m breakeven.runner.worker <run folder>` trains one model under one backend.

Only this package imports torch. Nothing imports it: the supervisor starts it as a process.
"""
