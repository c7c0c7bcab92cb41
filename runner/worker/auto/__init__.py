"""`breakeven.auto`: a training that tries a compiler on its own steps and keeps what is faster."""
