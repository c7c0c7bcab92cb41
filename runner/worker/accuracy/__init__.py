"""The scenario `accuracy`: outputs and gradients against a reference."""
