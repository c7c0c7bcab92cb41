"""Experiments at work: processes, the turn that they pass, how they ended."""
