"""One label per image, by a transformers model."""
