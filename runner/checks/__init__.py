"""What is refused before anything starts, and why."""
