"""Whether compiled code computes what the same code computes without a compiler."""
