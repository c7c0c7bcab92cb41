"""Checks that refuse an experiment before it starts."""
