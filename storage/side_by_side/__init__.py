"""Compares experiments: differences in settings, comparability, and differences in numbers."""
