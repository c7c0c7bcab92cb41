"""Faults that begin late in a training: recorded, judged, simulated."""
