"""The loops of the scenarios that train or time: blocks of steps, turn by turn; their callbacks,
evaluations and profiles."""
