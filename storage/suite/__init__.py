"""A suite run: its cells, what they come to together, and what changed."""
