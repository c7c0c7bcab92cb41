"""Specifications of experiments and their parts, and the rules of their fields."""
