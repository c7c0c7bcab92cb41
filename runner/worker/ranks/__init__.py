"""Starts the ranks of a run on several devices, and makes them end together."""
