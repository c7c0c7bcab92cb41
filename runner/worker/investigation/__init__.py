"""Finds the cause of a failed or wrong run by trials of its steps and graphs."""
