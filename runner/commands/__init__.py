"""`breakeven`: its commands, its options, what it prints."""
