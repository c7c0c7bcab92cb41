"""`python -m runner`: its commands, its options, what it prints."""
