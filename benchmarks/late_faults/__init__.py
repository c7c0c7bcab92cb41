"""Faults that show only late in a training: recorded, judged, simulated."""
