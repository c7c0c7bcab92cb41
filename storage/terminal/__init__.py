"""The output and the exit status of `breakeven` commands, and sentences that pages share."""
