"""Tokens hidden from the model, which it restores; by a transformers model."""
