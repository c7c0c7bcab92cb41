"""Devices: clocks, memory, and disturbances during a run."""
