"""Measures a user's training script without changing it."""
