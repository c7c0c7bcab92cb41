"""This machine: its devices and CPUs, and their allocation to experiments."""
