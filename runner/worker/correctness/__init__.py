"""Checks whether compiled code computes the same as the code without a compiler."""
