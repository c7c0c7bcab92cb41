"""What `breakeven` prints, and the status it ends with."""
