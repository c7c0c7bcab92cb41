"""What is wrong with this machine, this installation or this data folder, and what mends it."""
