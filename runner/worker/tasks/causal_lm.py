"""The next token of every text, by a transformers model."""
