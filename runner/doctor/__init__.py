"""Finds faults of this machine, this installation or this data folder, with their remedies."""
