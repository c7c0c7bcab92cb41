"""Figures: pure functions of data frames."""
