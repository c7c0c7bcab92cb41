"""What Breakeven's processes share: names and records of folders, events, states and turns."""
