"""Live as a wall shows it: every device a tile, in letters that are read from across a room."""
