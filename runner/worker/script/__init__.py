"""A training script of a person's own, measured as it is."""
