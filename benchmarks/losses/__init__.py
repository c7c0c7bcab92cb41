"""Simulated losses of trainings: what is called learned, broken or as good."""
