"""Clocks, memory, and what befalls the device while a run goes on."""
