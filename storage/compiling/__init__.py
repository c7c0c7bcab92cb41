"""What each stage of a compiler did to a run, and what it did otherwise in another run."""
