"""Copies of the data folder that can be brought back: taken while trainings write, and checked."""
