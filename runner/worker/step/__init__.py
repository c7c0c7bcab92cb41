"""One optimizer step, and one forward pass."""
