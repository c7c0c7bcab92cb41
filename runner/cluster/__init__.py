"""Experiments on other machines: placed there, worked at by the same scheduler, brought home."""
