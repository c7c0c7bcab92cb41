"""The command line `breakeven`: commands, options, output."""
