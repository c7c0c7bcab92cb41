"""What is asked of a backend that draws other random numbers than torch does without a compiler."""
