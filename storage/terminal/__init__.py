"""What `python -m storage` prints, and the status it ends with."""
