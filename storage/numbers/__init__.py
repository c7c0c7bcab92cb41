"""Every number that is shown: its name, unit, format and definition."""
