"""Experiments held against each other: what differs, what may be compared, by how much."""
