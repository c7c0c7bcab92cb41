"""A model and samples from Python files of one's own."""
