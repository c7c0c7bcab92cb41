"""A training script of a person's own: run, told when a step ends, and measured as it is."""
