"""Reads samples from files, encodes them as tensors, and divides them into batches."""
