"""One label per text, by a transformers model."""
