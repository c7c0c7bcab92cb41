"""The parts of the page Experiments."""
