"""A run: `python -m breakeven.runner.worker <run folder>` trains one model under one backend.

Torch lives only here. Nothing imports this package; it is started by module name.
"""
