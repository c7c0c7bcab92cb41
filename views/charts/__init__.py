"""Charts: pure functions of data frames."""
