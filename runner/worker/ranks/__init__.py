"""Starts the ranks of a run on several devices, and sees to it that they end together."""
