"""Trains and times blocks of steps, turn by turn; with callbacks, evaluations and profiles."""
