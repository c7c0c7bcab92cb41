"""Callbacks that come with Breakeven: checkpoints, early stops, gradients, predictions."""
